"""Matrix products against loops that count, and against figures worked out by hand."""

from __future__ import annotations

import itertools

import pytest

from gobrrr.cost import price
from gobrrr.model.work import OpCall, Scalar, Tensor, TensorList

BF16 = "bfloat16"


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, BF16)


def call(name: str, *inputs: Tensor | Scalar | TensorList, kernels: tuple[str, ...] = ()) -> OpCall:
    return OpCall(name=name, inputs=inputs, kernels=kernels)


def counted(batch: int, rows: int, columns: int, inner: int) -> int:
    """Multiplications and additions of the textbook loop, the first addition to zero included."""
    return sum(2 for _ in itertools.product(range(batch), range(rows), range(columns), range(inner)))


@pytest.mark.parametrize(
    ("name", "inputs", "sizes"),
    [
        ("aten::mm", (bf16(3, 5), bf16(5, 4)), (1, 3, 4, 5)),
        ("aten::bmm", (bf16(2, 3, 5), bf16(2, 5, 4)), (2, 3, 4, 5)),
        ("aten::addmm", (bf16(4), bf16(3, 5), bf16(5, 4), Scalar("1"), Scalar("1")), (1, 3, 4, 5)),
        ("aten::_addmm_activation", (bf16(4), bf16(3, 5), bf16(5, 4)), (1, 3, 4, 5)),
        ("aten::baddbmm", (bf16(2, 3, 4), bf16(2, 3, 5), bf16(2, 5, 4)), (2, 3, 4, 5)),
        ("aten::addbmm", (bf16(3, 4), bf16(2, 3, 5), bf16(2, 5, 4)), (2, 3, 4, 5)),
        ("aten::mv", (bf16(3, 5), bf16(5)), (1, 3, 1, 5)),
        ("aten::addmv", (bf16(3), bf16(3, 5), bf16(5)), (1, 3, 1, 5)),
        ("aten::dot", (bf16(5), bf16(5)), (1, 1, 1, 5)),
        ("aten::linear", (bf16(2, 3, 5), bf16(4, 5), bf16(4)), (2, 3, 4, 5)),
        ("aten::matmul", (bf16(2, 1, 3, 5), bf16(3, 5, 4)), (6, 3, 4, 5)),
        ("aten::matmul", (bf16(5), bf16(2, 5, 4)), (2, 1, 4, 5)),
        ("aten::_int_mm", (Tensor((3, 5), "int8"), Tensor((5, 4), "int8")), (1, 3, 4, 5)),
        ("aten::_weight_int8pack_mm", (bf16(3, 5), Tensor((4, 5), "int8"), bf16(4)), (1, 3, 4, 5)),
        ("aten::_grouped_mm", (bf16(3, 5), bf16(2, 5, 4), Tensor((2,), "int32")), (1, 3, 4, 5)),
        ("aten::_grouped_mm", (bf16(3, 5), bf16(5, 4), Tensor((2,), "int32")), (1, 3, 4, 5)),
        ("aten::_grouped_mm", (bf16(2, 3, 5), bf16(2, 5, 4)), (2, 3, 4, 5)),
        ("aten::einsum", (Scalar("bij,bjk->bik"), TensorList((bf16(2, 3, 5), bf16(2, 5, 4)))), (2, 3, 4, 5)),
    ],
)
def test_flop_is_what_the_loop_does(name: str, inputs: tuple[Tensor, ...], sizes: tuple[int, int, int, int]) -> None:
    assert price(call(name, *inputs)).matrix_flop == counted(*sizes)


def test_a_linear_layer_of_bert_by_hand() -> None:
    # 16384 tokens, 768 -> 3072, bf16. 2 * 16384 * 768 * 3072 = 77,309,411,328 FLOP.
    work = price(call("aten::addmm", bf16(3072), bf16(16384, 768), bf16(768, 3072), Scalar("1"), Scalar("1")))
    assert work.matrix_flop == 77_309_411_328
    # (16384 * 768 + 768 * 3072 + 3072) * 2 in, 16384 * 3072 * 2 out
    assert (work.bytes_read, work.bytes_written) == (29_890_560, 100_663_296)
    assert (work.count, work.matrix_dtype, work.fusible) == ("exact", "bfloat16", False)


def test_what_beta_multiplies_by_zero_is_not_read() -> None:
    with_it = price(call("aten::addmm", bf16(3, 4), bf16(3, 5), bf16(5, 4), Scalar("1")))
    without = price(call("aten::addmm", bf16(3, 4), bf16(3, 5), bf16(5, 4), Scalar("0")))
    assert (with_it.bytes_read, without.bytes_read) == ((12 + 15 + 20) * 2, (15 + 20) * 2)


def test_int4_weights_are_a_quarter_of_a_byte_pair() -> None:
    # K = 4096, N = 4096 packed as (N / 8, K / 128, 32, 4) of int32: half a byte a weight.
    packed = Tensor((512, 32, 32, 4), "int32")
    scales = bf16(32, 4096, 2)
    work = price(call("aten::_weight_int4pack_mm", bf16(1, 4096), packed, Scalar("128"), scales))
    assert work.matrix_flop == 2 * 4096 * 4096
    assert work.bytes_read == 4096 * 2 + 4096 * 4096 / 2 + 32 * 4096 * 2 * 2


def test_scaled_mm_runs_on_float8_and_writes_the_asked_type() -> None:
    f8 = Tensor((128, 256), "float8_e4m3fn"), Tensor((256, 64), "float8_e4m3fn")
    scale = Tensor((), "float32")
    rest = (Scalar(""), Scalar(""), Scalar("15"), Scalar("False"))
    work = price(call("aten::_scaled_mm", *f8, scale, scale, *rest))
    assert (work.matrix_dtype, work.matrix_flop) == ("float8", 2 * 128 * 256 * 64)
    assert work.bytes_written == 128 * 64 * 2


def test_two_elements_share_an_item_of_float4() -> None:
    packed = Tensor((128, 128), "float4_e2m1fn_x2"), Tensor((128, 64), "float4_e2m1fn_x2")
    work = price(call("aten::_scaled_mm", *packed))
    assert (work.matrix_dtype, work.matrix_flop) == ("float4", 2 * 128 * 256 * 64)


@pytest.mark.parametrize(
    ("kernel", "unit", "by_name"),
    [
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", "float32", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma", "float32", True),
        ("volta_sgemm_128x32_nt", "float32", True),
        ("internal::gemvx::kernel<int, int, float, float, float>", "float32", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>", "tf32", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16", "tf32", True),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc", "tf32", True),
        ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "float32", False),
    ],
)
def test_the_kernel_tells_whether_tf32_was_on(kernel: str, unit: str, by_name: bool) -> None:
    inputs = Tensor((64, 64), "float32"), Tensor((64, 64), "float32")
    work = price(call("aten::mm", *inputs, kernels=("Memset (Device)", kernel)))
    assert (work.matrix_dtype, work.by_name) == (unit, by_name)
    assert bool(work.note) is not by_name


def test_a_bf16_kernel_name_does_not_turn_bf16_into_tf32() -> None:
    kernel = "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1"
    assert price(call("aten::bmm", bf16(2, 8, 8), bf16(2, 8, 8), kernels=(kernel,))).matrix_dtype == "bfloat16"


def test_operands_that_do_not_fit_are_unknown() -> None:
    work = price(call("aten::mm", bf16(3, 5), bf16(6, 4)))
    assert (work.count, work.matrix_flop) == ("unknown", None)
    assert "5 and 6" in work.note
