"""The word of a call: for each, an example that deserves it and a usual one that does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from gobrrr.cost import names, price
from gobrrr.hardware.efficiency import canonical
from gobrrr.hardware.variants import copied, hidden_copy, repeats, variant
from gobrrr.model.work import OpCall, Scalar, Tensor, TensorList
from tests.cost.test_properties import CALLS
from tests.recordings import tensor
from tests.spread import examples


def word(call: OpCall) -> str:
    return variant(canonical(call.name), price(call).family, call)


def op(name: str, *inputs: Tensor | TensorList | str, outputs: tuple[Tensor, ...] | None = None) -> OpCall:
    made = tuple(Scalar(one) if isinstance(one, str) else one for one in inputs)
    return OpCall(name=f"aten::{name}", inputs=made, outputs=outputs)


def channels_last(n: int, c: int, h: int, w: int, dtype: str = "bfloat16") -> Tensor:
    return Tensor((n, c, h, w), dtype, (h * w * c, 1, w * c, c))


def turned(m: int, n: int, dtype: str = "bfloat16") -> Tensor:
    """[m, n], its columns contiguous."""
    return Tensor((m, n), dtype, (1, m))


# Matrix products: 16 bytes are 8 elements of bfloat16 and 4 of float32


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (op("mm", tensor(64, 1024), tensor(1024, 50304)), ""),
        (op("mm", tensor(64, 1024), tensor(1024, 50257)), "odd"),
        (op("mm", tensor(64, 1023), tensor(1023, 64)), "odd"),
        (op("mm", tensor(63, 1024), tensor(1024, 64)), ""),  # how many rows there are does not matter
        (op("mm", tensor(64, 1024), turned(1024, 64)), ""),
        (op("mm", tensor(64, 1023), turned(1023, 64)), "odd"),
        (op("mm", tensor(64, 1028, dtype="float32"), tensor(1028, 64, dtype="float32")), ""),
        (op("mm", tensor(64, 1028), tensor(1028, 64)), "odd"),
        (op("addmm", tensor(3), tensor(64, 64), tensor(64, 64)), ""),  # the bias is no matrix
        (op("bmm", tensor(4, 64, 64), tensor(4, 64, 63)), "odd"),
        (op("bmm", tensor(4, 64, 64), tensor(4, 64, 64)), ""),
    ],
)
def test_rows_that_are_not_aligned(call: OpCall, expected: str):
    assert word(call) == expected


# Convolutions


def convolution(data: Tensor, weight: Tensor, groups: int = 1) -> OpCall:
    return op("convolution", data, weight, "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", str(groups))


@pytest.mark.parametrize(
    ("data", "weight", "groups", "expected"),
    [
        (tensor(8, 64, 56, 56), tensor(64, 64, 3, 3), 1, "kn.nchw"),
        (channels_last(8, 64, 56, 56), tensor(64, 64, 3, 3), 1, "kn.nhwc"),
        (tensor(8, 64, 56, 56), tensor(256, 64, 1, 1), 1, "k1.nchw"),
        (tensor(8, 3, 224, 224), tensor(64, 3, 7, 7), 1, "stem.nchw"),
        (tensor(8, 64, 56, 56), tensor(64, 1, 3, 3), 64, "depthwise3.nchw"),
        (channels_last(8, 64, 56, 56), tensor(64, 1, 7, 7), 64, "depthwise7.nhwc"),
        (tensor(8, 64, 56, 56), tensor(128, 2, 3, 3), 32, "grouped.nchw"),
        (tensor(8, 1, 56, 56), tensor(8, 1, 3, 3), 1, "stem.nchw"),
    ],
)
def test_convolutions(data: Tensor, weight: Tensor, groups: int, expected: str):
    assert word(convolution(data, weight, groups)) == expected
    gradient = tensor(8, weight.shape[0], 56, 56)
    backward = op(
        "convolution_backward", gradient, data, weight, "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]",
        str(groups), "[True, True, False]",
    )  # fmt: skip
    assert word(backward) == expected


@pytest.mark.parametrize(("groups", "expected"), [(1, "kn.nchw"), (4, "grouped.nchw"), (64, "depthwise3.nchw")])
def test_a_transposed_convolution_says_its_groups(groups: int, expected: str):
    """Its weight is [in, out / groups, ...]: a ConvTranspose2d(64, 32, 3) has [64, 32, 3, 3] and is not grouped."""
    data, weight = tensor(8, 64, 28, 28), tensor(64, 32 if groups == 1 else 1, 3, 3)
    where = ("[2, 2]", "[1, 1]", "[1, 1]", "True", "[1, 1]", str(groups))
    forward = op("convolution", data, weight, "", *where)
    backward = op("convolution_backward", tensor(8, 32, 56, 56), data, weight, "[0]", *where, "[True, True, False]")
    cudnn = op("cudnn_convolution_transpose", data, weight, *["[1, 1]"] * 4, str(groups), "False", "False", "True")
    assert {word(forward), word(backward), word(cudnn)} == {expected}


# Attention


@pytest.mark.parametrize(
    ("size", "queries", "expected"), [(64, 512, "d64"), (80, 512, "d128"), (256, 512, "d256"), (128, 1, "d128.one")]
)
def test_attention_by_head_size_and_decoding(size: int, queries: int, expected: str):
    """Above the backend [batch, heads, queries, size]; the backend's own op has [batch, queries, heads, size]."""
    above = [tensor(2, 12, length, size) for length in (queries, 512, 512)]
    below = [tensor(2, length, 12, size) for length in (queries, 512, 512)]
    assert word(op("_scaled_dot_product_flash_attention", *above, "0.", "True", "False")) == expected
    assert word(op("_flash_attention_forward", *below, "", "", str(queries), "512", "0.", "True", "False")) == expected


# Norms, softmax


def batch_norm(training: str, data: Tensor) -> OpCall:
    per_channel = tensor(data.shape[1], dtype="float32")
    return op("native_batch_norm", data, *[per_channel] * 4, training, "0.1", "1e-05")


def test_batch_norm_by_mode_and_layout():
    assert word(batch_norm("True", tensor(8, 64, 7, 7))) == "train.nchw"
    assert word(batch_norm("False", tensor(8, 64, 7, 7))) == "eval.nchw"
    assert word(batch_norm("True", channels_last(8, 64, 7, 7))) == "train.nhwc"
    assert word(batch_norm("False", tensor(8, 64))) == "eval."


@pytest.mark.parametrize("name", ["_native_batch_norm_legit_no_training", "_batch_norm_no_update"])
def test_a_batch_norm_that_says_so_in_its_name_is_an_inference_s(name: str):
    data, per_channel = tensor(8, 64, 7, 7), tensor(64, dtype="float32")
    assert word(op(name, data, *[per_channel] * 4, "0.1", "1e-05")) == "eval.nchw"


def test_the_backward_of_batch_norm_is_training_unless_it_says_otherwise():
    data, per_channel = channels_last(8, 64, 7, 7), tensor(64, dtype="float32")
    own = op("native_batch_norm_backward", data, data, *[per_channel] * 5, "True", "1e-05", "[True, True, True]")
    cudnn = op("cudnn_batch_norm_backward", data, data, *[per_channel] * 5, "1e-05", tensor(0, dtype="uint8"))
    assert word(own) == word(cudnn) == "train.nhwc"


@pytest.mark.parametrize(("width", "norm", "softmax"), [(384, "narrow", ""), (1024, "", ""), (50257, "", "wide")])
def test_rows_that_are_narrow_or_wide(width: int, norm: str, softmax: str):
    data, weight = tensor(128, width), tensor(width)
    assert word(op("native_layer_norm", data, f"[{width}]", weight, weight, "1e-05")) == norm
    assert word(op("_softmax", data, "-1", "False")) == softmax


# Pointwise and copies


ROWS, COLUMNS = tensor(512, 256), turned(512, 256)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (op("add", ROWS, ROWS, "1"), ""),
        (op("add", COLUMNS, COLUMNS, "1"), ""),  # both in the same order
        (op("add", ROWS, COLUMNS, "1"), "turned"),
        (op("add", ROWS, tensor(256), "1"), ""),  # a small operand decides nothing
        (op("add", ROWS, Tensor((512, 256), "bfloat16", (0, 1)), "1"), "broadcast"),
        (op("add", Tensor((512, 256), "bfloat16", (512, 1)), ROWS, "1"), "strided"),
        (op("copy_", ROWS, COLUMNS), "turned"),
        (op("copy_", ROWS, ROWS), ""),
        (op("clone", COLUMNS, "0", outputs=(ROWS,)), "turned"),
        (op("clone", COLUMNS, "0"), ""),  # a trace does not record the output
        (op("_foreach_add_", TensorList((ROWS, ROWS)), TensorList((ROWS, ROWS)), "1"), ""),
    ],
)
def test_orders_in_memory(call: OpCall, expected: str):
    assert word(call) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (op("copy_", tensor(8, dtype="float32"), tensor(8)), "bfloat16>float32"),
        (op("_to_copy", tensor(8, dtype="float32"), outputs=(tensor(8),)), "float32>bfloat16"),
        (op("clone", tensor(8)), "bfloat16>bfloat16"),
        (op("copy_"), ""),
    ],
)
def test_the_types_of_a_copy(call: OpCall, expected: str):
    assert copied(call) == expected


# Reductions


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (op("sum", tensor(64, 64), ""), "all"),
        (op("sum", tensor(64, 64), "[0]", "False", ""), "outer"),
        (op("sum", tensor(64, 64), "[1]", "False", ""), "inner"),
        (op("sum", tensor(64, 64), "[-1]", "True", ""), "inner"),
        (op("sum", tensor(64, 64), "[0, 1]", "False", ""), "all"),
        (op("sum", tensor(4, 64, 64), "[0, 1]", "False", ""), "outer"),
        (op("amax", tensor(64, 64), "[0]", "False"), "outer"),
        (op("argmax", tensor(64, 64), "1", "False"), "inner"),
        (op("mean", tensor(64, 64), ""), "all"),
        (op("linalg_vector_norm", tensor(64, 64), "2", "", "False", ""), "all"),  # the order of the norm comes first
        (op("linalg_vector_norm", tensor(64, 64), "2", "[1]", "False", ""), "inner"),
        (op("norm", tensor(64, 64), "2", "[0]", "False"), "outer"),
        (op("topk", tensor(64, 64), "8", "-1", "True", "True"), "inner"),
        (op("topk", tensor(64, 64), "1", "0", "True", "True"), "outer"),
    ],
)
def test_which_dimensions_go(call: OpCall, expected: str):
    assert word(call) == expected


# What a norm copies first


def test_a_norm_copies_what_does_not_lie_in_rows():
    shape = (8, 256, 512)
    lying = Tensor(shape, "bfloat16", (256 * 512, 1, 256))
    assert hidden_copy("native_layer_norm", op("native_layer_norm", lying)) == lying
    assert hidden_copy("native_layer_norm", op("native_layer_norm", tensor(*shape))) is None
    assert hidden_copy("native_layer_norm", op("native_layer_norm", Tensor(shape, "bfloat16"))) is None
    assert hidden_copy("relu", op("relu", lying)) is None
    backward = op("native_layer_norm_backward", tensor(*shape), lying)
    assert hidden_copy("native_layer_norm_backward", backward) == lying


# Recurrences


def recurrent(data: Tensor, layers: int, batch_first: str = "False") -> OpCall:
    weights = TensorList((tensor(4 * 32, 32), tensor(4 * 32, 32)))
    state = tensor(layers, data.shape[1], 32)
    return op(
        "_cudnn_rnn", data, weights, "4", "", state, state, "2", "32", "0", str(layers), batch_first, "0.", "True"
    )


def test_a_recurrence_takes_its_steps_one_after_the_other_in_each_layer():
    assert repeats("_cudnn_rnn", recurrent(tensor(100, 8, 32), 1)) == 100
    assert repeats("_cudnn_rnn", recurrent(tensor(100, 8, 32), 2)) == 200
    assert repeats("_cudnn_rnn", recurrent(tensor(8, 100, 32), 2, batch_first="True")) == 200
    assert repeats("mm", op("mm", tensor(100, 8), tensor(8, 8))) == 1


# Laws


@settings(max_examples=examples(500, ci=100), deadline=None)
@given(CALLS)
def test_no_arguments_break_it(call: OpCall):
    for name in (canonical(call.name), "native_batch_norm", "fused_attention", "_cudnn_rnn", "native_layer_norm"):
        for family in (price(call).family, "matmul", "convolution", "reduction", "softmax", "pointwise"):
            assert isinstance(variant(name, family, call), str)
        assert repeats(name, call) >= 1
        hidden_copy(name, call)
    copied(call)


def test_an_operation_without_tensors_has_a_word():
    for name in names():
        assert isinstance(word(OpCall(name=name.replace("*", "x"))), str)


def test_a_reduction_or_softmax_of_one_number_is_the_usual():
    """`loss.mean()` of a loss that is a number already."""
    number = Tensor((), "float32", ())
    assert [word(op(name, number, "0", "False")) for name in ("mean", "sum", "_softmax")] == ["", "", ""]
