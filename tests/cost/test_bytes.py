"""Bytes of what moves data, each worked out by hand beside the call."""

from __future__ import annotations

import pytest

from gobrrr.cost import price
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, TensorList, Work


def t(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, strides)


def s(text: object = "") -> Scalar:
    return Scalar(str(text))


def work_of(name: str, *inputs: Argument, kernels: tuple[str, ...] = ()) -> Work:
    return price(OpCall(name=name, inputs=inputs, kernels=kernels))


MB = 1000 * 1000
I64 = "int64"


@pytest.mark.parametrize(
    ("name", "inputs", "read", "written"),
    [
        # pointwise: broadcasting, promotion, in place, out
        ("aten::add", (t(1000, 1000), t(1000), s(1)), 4 * MB + 4000, 4 * MB),
        ("aten::add", (t(1000, 1), t(1, 1000), s(1)), 8000, 4 * MB),
        ("aten::add_", (t(1000, 1000), t(1000, 1000), s(1)), 8 * MB, 4 * MB),
        ("aten::mul", (t(1000, 1000, dtype="bfloat16"), t()), 2 * MB + 4, 2 * MB),
        ("aten::mul", (t(1000, 1000, dtype="bfloat16"), t(1000, 1000)), 6 * MB, 4 * MB),
        ("aten::mul", (t(1000, 1000, dtype="float16"), s("0.5")), 2 * MB, 2 * MB),
        ("aten::mul", (t(1000, 1000, dtype=I64), s("0.5")), 8 * MB, 4 * MB),
        ("aten::div", (t(1000, 1000, dtype="int32"), s(2)), 4 * MB, 4 * MB),
        ("aten::add", (t(1000, dtype="float16"), t(1000, dtype="bfloat16"), s(1)), 4000, 4000),
        ("aten::eq", (t(1000, 1000, dtype=I64), s(0)), 8 * MB, MB),
        ("aten::lt", (t(1000, 1000), t(1000, 1000)), 8 * MB, MB),
        ("aten::where", (t(1000, 1000, dtype="bool"), t(1000, 1000), t()), 5 * MB + 4, 4 * MB),
        ("aten::masked_fill_", (t(8, 1000, 1000), t(1000, 1000, dtype="bool"), s("-inf")), 33 * MB, 32 * MB),
        ("aten::add", (t(1000, 1000, strides=(0, 1)), s(1), s(1)), 4000, 4 * MB),
        ("aten::_to_copy", (t(1000, 1000), s(15)), 4 * MB, 2 * MB),
        ("aten::native_dropout", (t(1000, 1000), s("0.1"), s("True")), 4 * MB, 5 * MB),
        ("aten::gelu_backward", (t(1000, 1000, dtype="bfloat16"), t(1000, 1000, dtype="bfloat16")), 4 * MB, 2 * MB),
        # movement
        ("aten::copy_", (t(1000, 1000), t(1000, 1000, dtype="bfloat16"), s("False")), 2 * MB, 4 * MB),
        ("aten::copy_", (t(1000, 1000), t(1000, 1000, strides=(0, 1)), s("False")), 4000, 4 * MB),
        ("aten::fill_", (t(1000, 1000), s(0)), 0, 4 * MB),
        ("aten::tril", (t(1000, 1000, dtype="bool"), s(0)), MB, MB),
        ("aten::arange", (s(0), s(16384), s(1), t(0, dtype=I64)), 0, 16384 * 8),
        ("aten::repeat", (t(1000), s("[3, 2]")), 4000, 24000),
        ("aten::constant_pad_nd", (t(2, 3), s("[1, 1]"), s(0)), 24, 40),
        ("aten::embedding", (t(30522, 768), t(8, 16, dtype=I64), s(-1)), 128 * 768 * 4 + 128 * 8, 128 * 768 * 4),
        ("aten::embedding", (t(2, 768), t(8, 16, dtype=I64)), 2 * 768 * 4 + 128 * 8, 128 * 768 * 4),
        ("aten::index_select", (t(50, 4), s(1), t(3, dtype=I64)), 50 * 16 + 24, 3 * 50 * 4),
        ("aten::gather", (t(100, 10), s(1), t(100, 1, dtype=I64), s("False")), 100 * 40 + 800, 400),
        ("aten::gather", (t(100, 1000), s(1), t(100, 1, dtype=I64), s("False")), 100 * 64 + 800, 400),
        ("aten::index_add_", (t(99, 10), s(0), t(7, dtype=I64), t(7, 10), s(1)), 56 + 280 + 280, 280),
        # reductions
        ("aten::sum", (t(1000, 1000), s("[0]"), s("True"), s()), 4 * MB, 4000),
        ("aten::sum", (t(1000, 1000, dtype="bool"), s()), MB, 8),
        ("aten::mean", (t(1000, 1000), s("[]"), s("False"), s()), 4 * MB, 4),
        ("aten::max", (t(1000, 1000), s(1), s("False")), 4 * MB, 12000),
        ("aten::argmax", (t(1000, 1000), s(-1), s("False")), 4 * MB, 8000),
        ("aten::topk", (t(2048, 32, dtype="bfloat16"), s(2), s(-1), s("True"), s("True")), 131072, 2048 * 2 * 10),
        ("aten::cumsum", (t(32, dtype=I64), s(0), s()), 256, 256),
        ("aten::_log_softmax", (t(8192, 50257), s(1), s("False")), 8192 * 50257 * 4, 8192 * 50257 * 4),
        ("aten::_softmax", (t(8, 10, dtype="float16"), s(-1), s("True")), 160, 320),
        # normalization
        ("aten::native_layer_norm", (t(10, 100), s("[100]"), t(100), t(100), s("1e-5")), 4800, 4000 + 80),
        ("aten::_fused_rms_norm", (t(8, 16, 32, 32), s("[32, 32]"), t(32, 32), s()), 524288 + 4096, 524288 + 512),
        # pooling: 3 x 3, stride 2, padding 1 on 112 gives 56
        (
            "aten::max_pool2d_with_indices",
            (t(1, 64, 112, 112), s("[3, 3]"), s("[2, 2]"), s("[1, 1]"), s("[1, 1]"), s("False")),
            64 * 112 * 112 * 4,
            64 * 56 * 56 * 12,
        ),
        ("aten::_adaptive_avg_pool2d", (t(2, 8, 7, 7), s("[1, 1]")), 2 * 8 * 49 * 4, 64),
        ("aten::upsample_nearest2d", (t(1, 2, 4, 4), s("[8, 8]"), s("2."), s("2.")), 128, 512),
    ],
)
def test_bytes(name: str, inputs: tuple[Argument, ...], read: float, written: float) -> None:
    work = work_of(name, *inputs)
    assert (work.bytes_read, work.bytes_written) == (read, written)
    assert work.known
    assert work.family


def test_cat_and_its_dtype_from_the_kernel() -> None:
    parts = TensorList((t(8, 256, 10, dtype=""), t(8, 100, 10, dtype="")))
    kernel = "void at::native::CatArrayBatchedCopy_vectorized<at::native::OpaqueType<2u>, unsigned int, 3>"
    work = work_of("aten::cat", parts, s(1), kernels=(kernel,))
    assert work.bytes_read == work.bytes_written == 8 * 356 * 10 * 2
    assert (work.count, work.by_name) == ("bounded", True)
    assert work_of("aten::cat", parts, s(1)).count == "unknown"


def test_batch_norm_reads_twice_in_training_and_once_otherwise() -> None:
    given, channel = t(64, 32, 10, 10), t(32)
    size, parameters = 64 * 32 * 100 * 4, 4 * 32 * 4
    tail = (s("0.1"), s("1e-5"))
    training = work_of("aten::native_batch_norm", given, *(channel,) * 4, s("True"), *tail)
    inference = work_of("aten::native_batch_norm", given, *(channel,) * 4, s("False"), *tail)
    assert training.bytes_read == 2 * size + parameters
    assert inference.bytes_read == size + parameters
    kernel = ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>",)
    once = work_of("aten::cudnn_batch_norm", given, *(channel,) * 4, s("True"), *tail, kernels=kernel)
    assert once.bytes_read == size + parameters


def test_copies_between_host_and_device_use_the_events_bytes() -> None:
    def copied(kernel: str, moved: int) -> Work:
        return price(OpCall(name="aten::copy_", inputs=(t(250), t(250)), kernels=(kernel,), copied_bytes=moved))

    inward, outward = copied("Memcpy HtoD (Pageable -> Device)", 1000), copied("Memcpy DtoH (Device -> Pinned)", 1000)
    assert (inward.link, inward.bytes, inward.bytes_written) == ("host", 1000, 1000)
    assert (outward.link, outward.bytes, outward.bytes_read) == ("host", 1000, 1000)
    within = copied("Memcpy DtoD (Device -> Device)", 1000)
    assert (within.link, within.bytes) == ("memory", 2000)  # its own rule, not both


def test_an_op_without_a_rule_that_only_copies_is_counted_by_its_copies() -> None:
    kernels = ("Memcpy DtoH (Device -> Pinned)",)
    work = price(OpCall(name="mylib::fetch", kernels=kernels, copied_bytes=8))
    assert (work.link, work.bytes, work.count) == ("host", 8, "exact")
    event = price(OpCall(name="Memcpy DtoD (Device -> Device)", copied_bytes=100))
    assert (event.bytes_read, event.bytes_written) == (100, 100)
    assert price(OpCall(name="Memset (Device)", copied_bytes=100)).bytes == 100


def test_views_are_free_and_say_so() -> None:
    work = work_of("aten::view", t(3, 4), s("[12]"))
    assert (work.count, work.bytes, work.flop) == ("view", 0, 0)
    stray = work_of("aten::detach", t(3, 4), kernels=("_my_triton_kernel",))
    assert stray.count == "unknown"


def test_unknown_is_never_zero() -> None:
    for name in ("mylib::op", "vllm::moe_forward", "aten::mm"):
        work = price(OpCall(name=name))
        assert (work.count, work.flop, work.bytes) == ("unknown", None, None)
        assert work.note


def test_indices_that_are_not_recorded_need_the_launch() -> None:
    kernel = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<...>>"
    call = OpCall(name="aten::index", inputs=(t(4096, 1), s()), kernels=(kernel,))
    assert price(call).count == "unknown"
    work = price(call, blocks=8)
    assert (work.count, work.by_name, work.bytes_written) == ("bounded", True, 8 * 512 * 4)


def test_triton_kernels_by_their_buffers() -> None:
    buffers = (t(1000, 1000),) * 4
    work = work_of("triton_poi_fused_add_clamp_cos_mul_sigmoid_0", *buffers, s(MB))
    assert work.bytes == 16 * MB
    assert (work.vector_flop, work.by_name, work.count) == (6 * MB, True, "bounded")  # clamp is two
    part = work_of("triton_poi_fused_clone_select_8", t(64, 197, 768), t(64, 768), s(49152))
    assert part.bytes == 2 * 49152 * 4
    left, right, out = t(64, 32), t(32, 16), t(64, 16)
    assert work_of("triton_tem_fused_mm_0", left, right, out).matrix_flop == 2 * 64 * 32 * 16
