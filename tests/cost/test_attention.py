"""Attention against a loop over the mask, and against figures worked out by hand."""

from __future__ import annotations

import pytest

from gobrrr.cost import price
from gobrrr.cost.attention import pairs
from gobrrr.cost.build import contraction_flop
from gobrrr.model.work import OpCall, Scalar, Tensor

NONE = Scalar("")


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, "bfloat16")


@pytest.mark.parametrize("bottom_right", [False, True])
@pytest.mark.parametrize("queries", range(6))
@pytest.mark.parametrize("keys", range(6))
def test_pairs_are_those_of_the_mask(queries: int, keys: int, bottom_right: bool) -> None:
    offset = keys - queries if bottom_right else 0
    mask = [(i, j) for i in range(queries) for j in range(keys) if j <= i + offset]
    assert pairs(queries, keys, causal=True, bottom_right=bottom_right) == len(mask)
    assert pairs(queries, keys, causal=False) == queries * keys


def flash_forward(causal: str) -> OpCall:
    query = bf16(16, 559, 16, 64)
    rest = (NONE, NONE, Scalar("559"), Scalar("559"), Scalar("0."), Scalar(causal), Scalar("False"), Scalar("0.125"))
    return OpCall(name="aten::_flash_attention_forward", inputs=(query, query, query, *rest, *(NONE,) * 4))


def test_the_causal_flag_is_found_in_the_flash_schema() -> None:
    # 4 * 16 * 16 * 559 * 559 * 64 = 20,478,754,816 FLOP over the square
    full, half = price(flash_forward("False")), price(flash_forward("True"))
    assert full.matrix_flop == 20_478_754_816
    assert half.matrix_flop == 20_478_754_816 * 560 // (2 * 559)


def test_the_cudnn_schemas_forward_and_backward() -> None:
    query, rows = bf16(32, 12, 512, 64), Tensor((32, 12, 512, 1), "float32")
    seed = Tensor((), "int64")
    tail = (Scalar("512"), Scalar("512"))
    forward = (
        query,
        query,
        query,
        NONE,
        NONE,
        NONE,
        *tail,
        Scalar("True"),
        Scalar("0."),
        Scalar("False"),
        Scalar("False"),
    )
    work = price(OpCall(name="aten::_cudnn_attention_forward", inputs=forward))
    # 4 * 32 * 12 * 512 * 512 * 64 = 25,769,803,776; q, k, v in and out of 12,582,912 elements; 196,608 rows of float32
    assert work.matrix_flop == 25_769_803_776
    assert (work.bytes_read, work.bytes_written) == (3 * 25_165_824, 25_165_824 + 786_432)
    head = (query, query, query, query, query, rows, seed, seed, NONE, NONE, NONE)
    backward = (*head, *tail, Scalar("0.1"), Scalar("False"), Scalar("0.125"))
    work = price(OpCall(name="aten::_cudnn_attention_backward", inputs=backward))
    assert work.matrix_flop == 2.5 * 25_769_803_776
    # dO, q, k, v, O and the log-sum-exp in; dq, dk, dv out
    assert (work.bytes_read, work.bytes_written) == (5 * 25_165_824 + 786_432, 3 * 25_165_824)


def test_the_efficient_schema_numbers_its_masks() -> None:
    query = Tensor((8, 1024, 12, 64), "float32")
    blanks = (NONE,) * 5
    for mask, count in (("0", 1024 * 1024), ("1", 1024 * 1025 // 2), ("2", 1024 * 1025 // 2)):
        rest = (*blanks, Scalar("0."), Scalar(mask), Scalar("True"), NONE, NONE, NONE)
        work = price(OpCall(name="aten::_efficient_attention_forward", inputs=(query, query, query, *rest)))
        assert (work.needed_flop, work.matrix_dtype) == (4 * 8 * 12 * 64 * count, "tf32")
        assert work.matrix_flop == 3 * 4 * 8 * 12 * 64 * count


def test_float32_in_the_efficient_kernels_is_three_products_of_tf32() -> None:
    # sm__ops_path_tensor_src_tf32_dst_fp32: 206,158,430,208 for 4 x 16 heads of 2048 x 2048 pairs, 64 wide.
    query = Tensor((4, 16, 2048, 64), "float32")
    tail = (NONE, Scalar("True"), Scalar("0."), Scalar("False"), NONE)
    name = "aten::_scaled_dot_product_efficient_attention"
    ampere = ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, ...>::Params)",)
    for kernels in (ampere, ()):
        work = price(OpCall(name=name, inputs=(query, query, query, *tail), kernels=kernels))
        assert (work.matrix_flop, work.matrix_dtype) == (206_158_430_208, "tf32")
        assert work.needed_flop == 4 * 4 * 16 * 2048 * 2048 * 64 == 68_719_476_736
        assert contraction_flop(work) == 68_719_476_736
    # Turing has no TF32, and another vendor's kernel says nothing of it; halves are one product each.
    for other in ("fmha_cutlassF_f32_aligned_64x64_rf_sm75(...)", "attn_fwd"):
        work = price(OpCall(name=name, inputs=(query, query, query, *tail), kernels=(other,)))
        assert (work.matrix_flop, work.matrix_dtype) == (68_719_476_736, "float32")
    half = bf16(4, 16, 2048, 64)
    assert price(OpCall(name=name, inputs=(half, half, half, *tail))).matrix_flop == 68_719_476_736


def test_float32_backward_in_the_efficient_kernels() -> None:
    query, rows, seed = Tensor((2, 4, 128, 64), "float32"), Tensor((2, 4, 128), "float32"), Tensor((), "int64")
    bias = Tensor((2, 4, 128, 128), "float32")
    for asked, more in (("True", 2 * 4 * 128 * 128 * 4), ("False", 0)):
        rest = (seed, seed, Scalar("0."), Scalar(f"[True, True, True, {asked}]"), Scalar("False"), NONE)
        inputs = (query, query, query, query, bias, query, rows, *rest)
        work = price(OpCall(name="aten::_scaled_dot_product_efficient_attention_backward", inputs=inputs))
        product = 2 * 2 * 4 * 128 * 128 * 64
        assert work.matrix_flop == 3 * 5 * product
        assert work.executed_flop == 3 * 4 * product
        assert work.needed_flop == 4 * product
        # The bias's gradient is written where it is asked for.
        assert work.bytes_written == 3 * 2 * 4 * 128 * 64 * 4 + more


def test_grouped_queries_share_keys() -> None:
    query, shared = bf16(2, 32, 128, 64), bf16(2, 8, 128, 64)
    work = price(OpCall(name="aten::scaled_dot_product_attention", inputs=(query, shared, shared)))
    assert work.matrix_flop == 4 * 2 * 32 * 128 * 128 * 64
    assert work.bytes_read == (2 * 32 + 2 * 2 * 8) * 128 * 64 * 2


def test_packed_sequences_are_bounded_from_below() -> None:
    tokens, starts = bf16(300, 4, 64), Tensor((4,), "int32")
    rest = (starts, starts, Scalar("200"), Scalar("200"), Scalar("0."), Scalar("False"), Scalar("False"))
    work = price(OpCall(name="aten::_flash_attention_forward", inputs=(tokens, tokens, tokens, *rest)))
    assert work.count == "bounded"
    # lengths 50, 50, 200 would be 4 * 4 * 64 * (2500 + 2500 + 40000); equal ones 100, 100, 100 give less
    assert work.matrix_flop == 4 * 4 * 64 * 3 * 100 * 100


def test_an_unrecorded_flag_is_said() -> None:
    call = OpCall(name="aten::scaled_dot_product_attention", inputs=(*(bf16(1, 2, 8, 4),) * 3, NONE, NONE, NONE))
    work = price(call)
    assert (work.count, "not recorded" in work.note) == ("bounded", True)
