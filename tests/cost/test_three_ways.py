"""FLOP three ways: what the maths needs, what is executed once, what the hardware does in all; laws of the counts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.cost import price
from gobrrr.model.work import OpCall, Scalar, Tensor, Work
from tests.spread import examples

NONE, NO, YES, ZERO = Scalar(""), Scalar("False"), Scalar("True"), Scalar("0.0")
SIZES = st.integers(1, 12)


def f32(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def flash(batch: int, heads: int, rows: int, head: int, causal: bool) -> Work:
    query = f32(batch, heads, rows, head)
    inputs = (query, query, query, ZERO, YES if causal else NO, NONE, NONE)
    return price(OpCall(name="aten::_scaled_dot_product_flash_attention_for_cpu", inputs=inputs))


def flash_backward(batch: int, heads: int, rows: int, head: int, causal: bool) -> Work:
    query, sums = f32(batch, heads, rows, head), f32(batch, heads, rows)
    inputs = (query, query, query, query, query, sums, ZERO, YES if causal else NO, NONE, NONE)
    return price(OpCall(name="aten::_scaled_dot_product_flash_attention_for_cpu_backward", inputs=inputs))


def math(batch: int, heads: int, rows: int, head: int, causal: bool) -> Work:
    query = f32(batch, heads, rows, head)
    inputs = (query, query, query, NONE, ZERO, YES if causal else NO, NONE, NONE, NO)
    return price(OpCall(name="aten::_scaled_dot_product_attention_math", inputs=inputs))


def test_nothing_known_is_none_three_times() -> None:
    work = Work(count="unknown")
    assert (work.flop, work.executed_flop, work.needed_flop) == (None, None, None)


def test_both_units_count() -> None:
    work = Work(count="exact", matrix_flop=100.0, vector_flop=10.0, recomputed_flop=20.0)
    assert (work.flop, work.executed_flop, work.needed_flop) == (110.0, 90.0, 90.0)
    halved = Work(count="exact", matrix_flop=100.0, vector_flop=10.0, model_flop=60.0)
    assert (halved.flop, halved.executed_flop, halved.needed_flop) == (110.0, 110.0, 60.0)


def test_a_causal_flag_halves_the_model_whatever_the_kernel_does() -> None:
    # 4 D a pair: 2 * 3 heads of 16 rows, D = 8: 136 pairs of 256.
    assert math(2, 3, 16, 8, True).flop == 4 * 8 * 6 * 256
    assert math(2, 3, 16, 8, True).needed_flop == 4 * 8 * 6 * 136
    assert flash(2, 3, 16, 8, True).needed_flop == 4 * 8 * 6 * 136
    assert math(2, 3, 16, 8, False).needed_flop == 4 * 8 * 6 * 256


def test_a_head_of_another_size_for_values() -> None:
    """Scores, dQ and dK over 192, the result, dP and dV over 128 (multi-head latent attention)."""
    query, value, sums = f32(1, 2, 10, 192), f32(1, 2, 10, 128), f32(1, 2, 10)
    inputs = (value, query, query, value, value, sums, ZERO, NO, NONE, NONE)
    work = price(OpCall(name="aten::_scaled_dot_product_flash_attention_for_cpu_backward", inputs=inputs))
    assert work.flop == 2 * 200 * (3 * 192 + 2 * 128)
    assert work.executed_flop == 2 * 200 * (2 * 192 + 2 * 128)


@given(SIZES, SIZES, st.integers(1, 40), SIZES, st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_attention_keeps_its_laws(batch: int, heads: int, rows: int, head: int, causal: bool) -> None:
    shape = (batch, heads, rows, head, causal)
    forward, backward = flash(*shape), flash_backward(*shape)
    assert forward.flop is not None
    assert backward.flop is not None
    # pairs by counting
    pairs = sum(1 for i in range(rows) for j in range(rows) if j <= i or not causal)
    assert forward.flop == 4 * batch * heads * pairs * head
    assert (backward.flop, backward.executed_flop, backward.needed_flop) == (
        2.5 * forward.flop,
        2 * forward.flop,
        2 * forward.flop,
    )
    assert math(*shape).needed_flop == forward.needed_flop
    assert forward.flop * 1 == batch * (flash(1, heads, rows, head, causal).flop or 0.0)
    if causal:
        full = flash(batch, heads, rows, head, False).flop or 0.0
        assert forward.flop * 2 * rows == full * (rows + 1)


def convolution(batch: int, channels: int, groups: int, side: int, kernel: int) -> tuple[Work, Work]:
    """Forward, and backward with both gradients, of a square convolution of stride 1 without padding."""
    given_, weight = f32(batch, channels, side, side), f32(channels, channels // groups, kernel, kernel)
    out = side - kernel + 1
    one, nothing = Scalar("[1, 1]"), Scalar("[0, 0]")
    rest = (one, nothing, one, NO, nothing, Scalar(str(groups)))
    forward = price(OpCall(name="aten::convolution", inputs=(given_, weight, NONE, *rest)))
    grad = f32(batch, channels, out, out)
    inputs = (grad, given_, weight, Scalar("[0]"), *rest, Scalar("[True, True, False]"))
    return forward, price(OpCall(name="aten::convolution_backward", inputs=inputs))


@given(st.integers(1, 4), st.sampled_from([1, 2, 4, 8]), st.integers(1, 3), st.integers(3, 7), st.integers(1, 3))
@settings(max_examples=examples(60), deadline=None)
def test_groups_divide_a_convolution_in_both_directions(
    batch: int, groups: int, times: int, side: int, kernel: int
) -> None:
    channels = 8 * times
    forward, backward = convolution(batch, channels, groups, side, kernel)
    dense, dense_backward = convolution(batch, channels, 1, side, kernel)
    assert (forward.flop or 0.0) * groups == dense.flop
    assert (backward.flop or 0.0) * groups == dense_backward.flop
    assert backward.flop == 2 * (forward.flop or 0.0)
    alone, _ = convolution(1, channels, groups, side, kernel)
    assert forward.flop == batch * (alone.flop or 0.0)


def loops(batch: int, channels: int, filters: int, groups: int, side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Multiply-adds of the textbook loops for the input's and for the weight's gradient."""
    out = (side - kernel) // stride + 1
    into_input = into_weight = 0
    for _image in range(batch):
        for k in range(filters):
            group = k // (filters // groups)
            for _place in range(out * out):
                for c in range(channels):
                    if c // (channels // groups) != group:
                        continue
                    for _tap in range(kernel * kernel):
                        into_input += 1  # dX[c] += dY[k] * W[k, c]
                        into_weight += 1  # dW[k, c] += dY[k] * X[c]
    return into_input, into_weight


@given(
    st.integers(1, 2), st.sampled_from([1, 2]), st.integers(1, 2), st.integers(1, 2), st.integers(3, 6),
    st.integers(1, 3), st.integers(1, 2),
)  # fmt: skip
@settings(max_examples=examples(40), deadline=None)
def test_convolution_gradients_against_loops(
    batch: int, groups: int, per_in: int, per_out: int, side: int, kernel: int, stride: int
) -> None:
    channels, filters = groups * per_in, groups * per_out
    out = (side - kernel) // stride + 1
    grad, into = f32(batch, filters, out, out), f32(batch, channels, side, side)
    weight = f32(filters, per_in, kernel, kernel)
    step, nothing, one = Scalar(f"[{stride}, {stride}]"), Scalar("[0, 0]"), Scalar("[1, 1]")
    rest = (Scalar("[0]"), step, nothing, one, NO, nothing, Scalar(str(groups)))
    counted = loops(batch, channels, filters, groups, side, kernel, stride)
    for mask, wanted in (("[True, False, False]", counted[:1]), ("[False, True, False]", counted[1:])):
        work = price(OpCall(name="aten::convolution_backward", inputs=(grad, into, weight, *rest, Scalar(mask))))
        assert work.flop == 2 * wanted[0]


@given(SIZES, SIZES, SIZES, st.integers(1, 30))
@settings(max_examples=examples(30), deadline=None)
def test_a_batch_of_products_is_that_many_products(rows: int, inner: int, columns: int, batch: int) -> None:
    one = price(OpCall(name="aten::mm", inputs=(f32(rows, inner), f32(inner, columns))))
    many = price(OpCall(name="aten::bmm", inputs=(f32(batch, rows, inner), f32(batch, inner, columns))))
    assert many.flop == batch * (one.flop or 0.0)
    assert many.bytes == batch * (one.bytes or 0.0)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 80))
@settings(max_examples=examples(30), deadline=None)
def test_a_sparse_product_is_its_density_of_the_dense_one(rows: int, inner: int, columns: int, nnz: int) -> None:
    stored = min(nnz, rows * inner)
    sparse = Tensor((rows, inner), "float32", None, stored)
    work = price(OpCall(name="aten::mm", inputs=(sparse, f32(inner, columns))))
    dense = price(OpCall(name="aten::mm", inputs=(f32(rows, inner), f32(inner, columns))))
    assert (work.flop or 0.0) * rows * inner == stored * (dense.flop or 0.0)
    unknown = price(
        OpCall(name="aten::mm", inputs=(f32(rows, inner), f32(inner, columns)), kernels=("cusparse::csrmm_alg2",))
    )
    assert unknown.count == "unknown"
