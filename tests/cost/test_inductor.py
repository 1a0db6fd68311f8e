"""Inductor's Triton kernels: which buffers are read and written, against hardware counters of an H100."""

from __future__ import annotations

import pytest

from gobrrr.cost import price
from gobrrr.model.work import OpCall, Scalar, Tensor, Work

WHOLE = 32768 * 4096


def t(*shape: int, dtype: str = "bfloat16") -> Tensor:
    return Tensor(shape, dtype)


def kernel(name: str, *buffers: Tensor, sizes: tuple[int, ...]) -> Work:
    return price(OpCall(name=name, inputs=(*buffers, *(Scalar(str(size)) for size in sizes))))


BIG, ROW, STATISTIC = t(32768, 4096), t(4096), t(32768, 1, dtype="float32")
WIDE, SUMS = t(32768, 4096, dtype="float32"), t(16777216, dtype="float32")
COUNTERS = [
    # name, buffers, sizes, DRAM bytes read and written (up to 25 MB more were left in the cache)
    ("triton_poi_fused_add_gelu_0", (BIG, ROW, BIG), (WHOLE,), 268_474_112, 251_533_568),
    ("triton_poi_fused_mul_silu_silu_backward_0", (BIG,) * 5, (WHOLE,), 805_325_568, 518_263_808),
    (
        "triton_red_fused_mean_pow_0",
        (t(16384, dtype="float32"), t(16384, 8192, dtype="float32")),
        (16384, 8192),
        536_880_896,
        2_106_112,
    ),
    (
        "triton_per_fused_gelu_gelu_backward_native_layer_norm_native_layer_norm_backward_1",
        (BIG, WIDE, ROW, BIG, STATISTIC, STATISTIC, BIG, SUMS),
        (32768, 4096),
        1_074_037_504,
        328_348_160,
    ),
    ("triton_red_fused__fused_rms_norm_add_0", (BIG, BIG, ROW, BIG), (32768, 4096), 537_128_448, 247_671_808),
    (
        "triton_red_fused_mul_sum_0",
        (WIDE, t(4096, 32, dtype="float32")),
        (131072, 1024),
        536_897_024,
        2_152_704,
    ),
]


@pytest.mark.parametrize(("name", "buffers", "sizes", "read", "written"), COUNTERS)
def test_reads_and_writes(
    name: str, buffers: tuple[Tensor, ...], sizes: tuple[int, ...], read: int, written: int
) -> None:
    work = kernel(name, *buffers, sizes=sizes)
    assert work.bytes_read == pytest.approx(read, rel=0.002)
    assert work.bytes_written is not None
    assert written - 3e6 <= work.bytes_written <= written + 25e6
    assert (work.count, work.by_name) == ("bounded", True)


def test_a_buffer_in_front_is_updated_in_place_where_the_last_one_is_too_small_for_a_result() -> None:
    # A bias and a relu on a product, in place: in_out_ptr0, in_ptr0.
    work = kernel("triton_poi_fused_addmm_relu_0", BIG, ROW, sizes=(WHOLE,))
    assert (work.bytes_read, work.bytes_written) == (2 * WHOLE + 2 * 4096, 2 * WHOLE)
    # A norm in place with its weight last: in_out_ptr0, in_ptr0.
    work = kernel("triton_per_fused_rms_0", BIG, ROW, sizes=(32768, 4096))
    assert (work.bytes_read, work.bytes_written) == (2 * WHOLE + 2 * 4096, 2 * WHOLE)


@pytest.mark.parametrize("buffers", [3, 4, 5])
def test_a_gate_reads_three_and_writes_two_however_many_are_in_place(buffers: int) -> None:
    work = kernel("triton_poi_fused_mul_silu_silu_backward_view_0", *(BIG,) * buffers, sizes=(WHOLE,))
    assert (work.bytes_read, work.bytes_written) == (3 * 2 * WHOLE, 2 * 2 * WHOLE)


def test_what_sizes_do_not_tell_is_said() -> None:
    work = kernel("triton_poi_fused_add_mul_0", *(BIG,) * 4, sizes=(WHOLE,))
    assert (work.bytes_read, work.bytes_written) == (3 * 2 * WHOLE, 2 * WHOLE)
    assert "updated in place is written too" in work.note
