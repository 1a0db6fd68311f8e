"""The DRAM traffic model against hardware counters (bench/results/h100_counters.json), hand counts and brute force."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import counters
from gobrrr.cost import price, waves
from gobrrr.cost.cache import SECTOR_BYTES, KernelTraffic, kept, left, spread_bytes
from gobrrr.cost.executed import tensor_flop
from gobrrr.cost.traffic import Traffic, dram
from gobrrr.model.work import OpCall, Scalar, Tensor, TensorList, Work

CACHE_BYTES, PROCESSORS = 52_428_800.0, 132  # the H100's, as it reports them
H100: dict[str, Any] = {"cache_bytes": CACHE_BYTES, "processors": PROCESSORS}


@lru_cache(maxsize=1)
def measured() -> list[counters.Row]:
    return counters.rows(counters.load())


def traffic(call: OpCall, cache_bytes: float = CACHE_BYTES) -> Traffic:
    return dram(call, price(call), cache_bytes=cache_bytes, processors=PROCESSORS)


def total(call: OpCall, cache_bytes: float = CACHE_BYTES) -> float:
    found = traffic(call, cache_bytes)
    assert found.read_bytes is not None
    assert found.written_bytes is not None
    return found.read_bytes + found.written_bytes


# The measured operations


def test_the_measurements_cover_what_the_issue_asks() -> None:
    rows = measured()
    assert sum(row.kernels for row in rows) >= 40
    assert {row.mode for row in rows} == {"eager", "compiled"}
    assert {row.passes for row in rows} == {"forward", "backward"}
    families = {row.family for row in rows}
    wanted = {"matmul", "convolution", "attention", "normalization", "softmax", "pointwise", "reduction", "movement"}
    assert families >= wanted | {"inductor", "optimizer", "pooling"}
    dtypes = {row.work.matrix_dtype for row in rows if row.flop}
    assert dtypes >= {"bfloat16", "float16", "tf32", "float8", "int8", "float64"}
    assert counters.unpriced(counters.load()) == []
    assert all(case["joined"] for case in counters.load()["cases"])


@pytest.mark.parametrize("held_out", [False, True])
def test_dram_bytes(held_out: bool) -> None:
    errors = [row.error for row in measured() if row.held_to and row.held_out is held_out]
    count, median, _, far = counters.spread(errors)
    assert count >= 60
    assert median <= 0.10
    assert far >= 0.90


def test_dram_bytes_as_predicted_before_the_held_out_were_measured() -> None:
    held = [row for row in measured() if row.held_to and row.before is not None]
    count, median, _, far = counters.spread(row.before / row.measured - 1 for row in held if row.before is not None)
    assert count >= 60
    assert median <= 0.10
    assert far >= 0.90


def test_dram_bytes_without_kernel_names() -> None:
    _, median, _, far = counters.spread(row.unnamed / row.measured - 1 for row in measured() if row.held_to)
    assert median <= 0.10
    assert far >= 0.90


def test_the_misses_are_those_listed() -> None:
    off = {row.case for row in measured() if row.held_to and abs(row.error) > counters.FAR}
    assert off == set(counters.MISSES)
    assert all(any(name in line for line in counters.misses(measured())) for name in counters.MISSES)


def test_tensor_core_flop() -> None:
    matrix = [row for row in measured() if counters.on_matrix_units(row)]
    assert len(matrix) >= 60
    off = {row.case for row in matrix if abs(counters.flop_error(row)) > counters.FLOP_TOLERANCE}
    assert off == set()


def test_the_table_has_every_row_and_every_miss() -> None:
    text = counters.table()
    assert all(f"`{name}`" in text for name in counters.MISSES)
    assert text.count("\n| mm.") == sum(row.case.startswith("mm.") for row in measured())


# Hand counts


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, "bfloat16")


def f32(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def test_a_product_of_one_wave_reads_its_operands_once() -> None:
    # 2048 / 128 x 2048 / 256 = 128 tiles on 132 processors.
    found = traffic(OpCall(name="aten::mm", inputs=(bf16(2048, 2048), bf16(2048, 2048))))
    assert found.read_bytes == 2 * 2048 * 2048 * 2


def test_a_flat_product_reads_the_short_operand_once_a_wave() -> None:
    # Tiles of 256 x 128 (columns x rows): 4 x 256, 33 columns a wave, 1024 / 132 -> 8 waves, none of which finds the
    # left operand in the cache: a wave brings 33 x 4 MiB. Panels split between two waves come on top.
    names = ("nvjet_sm90_tst_256x128_64x4_1x1_h_bz_TNT",)
    call = OpCall(name="aten::mm", inputs=(bf16(512, 8192), bf16(8192, 65536)), kernels=names)
    found = traffic(call)
    assert found.read_bytes is not None
    least = 8 * 512 * 8192 * 2 + 8192 * 65536 * 2
    assert least <= found.read_bytes <= 1.15 * least


def test_an_elementwise_kernel_leaves_its_last_writes_in_the_cache() -> None:
    found = traffic(OpCall(name="aten::cos", inputs=(f32(2**26),)))
    # Half of the traffic is writes: 0.76 x 0.5 of the cache; the counters of 2^26 cosines show 248,016,384.
    assert found.written_bytes == pytest.approx(2**28 - 0.38 * CACHE_BYTES)
    assert found.written_bytes == pytest.approx(248_016_384, rel=0.01)


def test_an_op_within_the_cache_writes_nothing_yet() -> None:
    found = traffic(OpCall(name="aten::cos", inputs=(f32(2**20),)))
    assert found == Traffic(2.0**22, 0.0)


def test_layer_norm_reads_rows_again_as_far_as_they_exceed_the_cache() -> None:
    def read(rows: int, width: int) -> float:
        inputs = (f32(rows, width), Scalar(f"[{width}]"), f32(width), f32(width), Scalar("1e-05"))
        return (traffic(OpCall(name="aten::native_layer_norm", inputs=inputs)).read_bytes or 0.0) - 2 * 4 * width

    assert read(131072, 768) == 131072 * 768 * 4  # 2112 rows in flight take 10 MB with their results
    assert read(4096, 32768) == 2 * 4096 * 32768 * 4  # 415 MB
    # Measured on 8192 rows of 4096, in between: 213,059,840.
    assert read(8192, 4096) == pytest.approx(213_059_840, rel=0.25)


def test_softmax_of_a_long_row_makes_three_passes() -> None:
    def read(*shape: int) -> float | None:
        return traffic(OpCall(name="aten::_softmax", inputs=(f32(*shape), Scalar("-1"), Scalar("False")))).read_bytes

    assert read(32768, 4096) == 32768 * 4096 * 4
    assert read(512, 262144) == 3 * 512 * 262144 * 4


def test_single_elements_bring_what_dram_gives_at_once() -> None:
    scores, target = f32(524288, 512), Tensor((524288,), "int64")
    inputs = (scores, target, Scalar(""), Scalar("1"), Scalar("-100"))
    found = traffic(OpCall(name="aten::nll_loss_forward", inputs=inputs))
    assert found.read_bytes == 524288 * (64 + 8)


def convolution_backward(kernel: int, stride: int) -> float:
    given, weight = Tensor((64, 128, 56, 56), "bfloat16", (401408, 1, 7168, 128)), bf16(128, 128, kernel, kernel)
    grad = Tensor((64, 128, 56 // stride, 56 // stride), "bfloat16", (401408 // stride**2, 1, 7168 // stride, 128))
    lists = (
        Scalar("[0]"),
        Scalar(f"[{stride}, {stride}]"),
        Scalar(f"[{kernel // 2}, {kernel // 2}]"),
        Scalar("[1, 1]"),
    )
    rest = (Scalar("False"), Scalar("[0, 0]"), Scalar("1"), Scalar("[True, False, False]"))
    call = OpCall(name="aten::convolution_backward", inputs=(grad, given, weight, *lists, *rest))
    return (dram(call, price(call), cache_bytes=1.0, processors=132).read_bytes or 0.0) - 2 * 128 * 128 * kernel**2


def test_a_strided_input_gradient_reads_dy_once_for_every_position_that_a_window_meets() -> None:
    dy = 64 * 128 * 28 * 28 * 2
    assert convolution_backward(3, 1) == 4 * dy
    assert convolution_backward(3, 2) == 4 * dy
    assert convolution_backward(1, 2) == dy


def test_flash_attention_backward_sums_dq_in_float32() -> None:
    query = Tensor((4, 32, 4096, 128), "bfloat16", (16777216, 128, 4096, 1))
    own = 4 * 32 * 4096 * 128 * 2
    rows = f32(4, 32, 4096)
    scalars = (Scalar(""), Scalar(""), Scalar("4096"), Scalar("4096"), Scalar("0.0"), Scalar("False"))
    call = OpCall(name="aten::_scaled_dot_product_flash_attention_backward", inputs=(*(query,) * 5, rows, *scalars))
    # dO and O; q, k, v, dO and the sums, of twice the size; the sums.
    assert traffic(call).read_bytes == (2 + 4 + 2 + 2) * own


def test_list_ops_leave_the_cache_full_once_a_launch() -> None:
    # 8 x 2^23 elements are 1024 chunks of 65536, 320 a launch.
    call = OpCall(name="aten::_foreach_mul_", inputs=(TensorList((f32(2048, 4096),) * 8), Scalar("0.5")))
    whole = 2.0**28
    assert traffic(call) == Traffic(whole, whole - 4 * 0.38 * CACHE_BYTES, "4 launches")


def test_the_flop_of_whole_tiles() -> None:
    # 8192 / 320 -> 26 columns of tiles, 64 rows.
    names = ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT",)
    call = OpCall(name="aten::mm", inputs=(bf16(8192, 8192), bf16(8192, 8192)), kernels=names)
    assert tensor_flop(call, price(call)) == 2 * 8192 * 8192 * 26 * 320
    # 8192 / 192 -> 43 rows of tiles, 44 in clusters of two.
    names = ("nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_bias_TNN",)
    call = OpCall(name="aten::mm", inputs=(bf16(8192, 4096), bf16(4096, 16384)), kernels=names)
    assert tensor_flop(call, price(call)) == 2 * 4096 * 44 * 192 * 86 * 192
    assert tensor_flop(OpCall(name="aten::cos", inputs=(f32(4),)), Work(count="exact")) is None


# What is not known


def test_without_a_machine_the_count_comes_back() -> None:
    call = OpCall(name="aten::mm", inputs=(bf16(8192, 8192), bf16(8192, 8192)))
    work = price(call)
    for cache_bytes, processors in ((None, 132), (5e7, None), (None, None)):
        found = dram(call, work, cache_bytes=cache_bytes, processors=processors)
        assert (found.read_bytes, found.written_bytes) == (work.bytes_read, work.bytes_written)


def test_an_unknown_work_stays_unknown() -> None:
    found = dram(OpCall(name="mylib::op"), Work(count="unknown"), cache_bytes=CACHE_BYTES, processors=PROCESSORS)
    assert (found.read_bytes, found.written_bytes) == (None, None)


def test_malformed_arguments_are_as_counted() -> None:
    work = Work(count="exact", bytes_read=1e9, bytes_written=0.0)
    for name in ("aten::mm", "aten::convolution_backward", "aten::embedding", "aten::_softmax", "aten::_foreach_add_"):
        found = dram(OpCall(name=name), work, cache_bytes=CACHE_BYTES, processors=PROCESSORS)
        assert found.read_bytes == 1e9


# Properties

SIZE = st.integers(1, 64).map(lambda one: 256 * one)


@st.composite
def calls(draw: st.DrawFn) -> OpCall:
    rows, inner, columns = draw(SIZE), draw(SIZE), draw(SIZE)
    kind = draw(st.sampled_from(["mm", "norm", "softmax", "add", "conv"]))
    if kind == "mm":
        return OpCall(name="aten::mm", inputs=(bf16(rows, inner), bf16(inner, columns)))
    if kind == "norm":
        inputs = (f32(rows, columns), Scalar(f"[{columns}]"), f32(columns), f32(columns), Scalar("1e-05"))
        return OpCall(name="aten::native_layer_norm", inputs=inputs)
    if kind == "softmax":
        return OpCall(name="aten::_softmax", inputs=(f32(rows, columns), Scalar("-1"), Scalar("False")))
    if kind == "conv":
        given = Tensor((rows // 64, 64, 56, 56), "bfloat16", (200704, 1, 3584, 64))
        lists = (Scalar("[1, 1]"), Scalar("[1, 1]"), Scalar("[1, 1]"), Scalar("False"), Scalar("[0, 0]"), Scalar("1"))
        return OpCall(name="aten::convolution", inputs=(given, bf16(64, 64, 3, 3), Scalar(""), *lists))
    return OpCall(name="aten::add", inputs=(f32(rows, columns), f32(rows, columns), Scalar("1")))


@given(calls())
def test_never_below_the_compulsory_bytes_beyond_the_cache(call: OpCall) -> None:
    work = price(call)
    found = traffic(call)
    assert work.bytes is not None
    assert found.read_bytes is not None
    assert work.bytes_read is not None
    assert found.read_bytes >= work.bytes_read * (1 - 1e-12)
    assert total(call) >= work.bytes - CACHE_BYTES


@given(calls(), st.floats(1.0, 8.0))
def test_a_larger_cache_moves_no_more(call: OpCall, factor: float) -> None:
    assert total(call, factor * CACHE_BYTES) <= total(call) * (1 + 1e-12)


@given(SIZE, SIZE, SIZE)
def test_a_product_of_twice_the_sizes_moves_more(rows: int, inner: int, columns: int) -> None:
    small = OpCall(name="aten::mm", inputs=(bf16(rows, inner), bf16(inner, columns)))
    large = OpCall(name="aten::mm", inputs=(bf16(2 * rows, 2 * inner), bf16(2 * inner, 2 * columns)))
    deeper = OpCall(name="aten::mm", inputs=(bf16(rows, 2 * inner), bf16(2 * inner, columns)))
    assert total(small) <= total(deeper) <= total(large)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 8), st.integers(1, 150))
def test_touched_panels_by_brute_force(grouped: int, other: int, group: int, processors: int) -> None:
    order = [
        (one, along)
        for start in range(0, grouped, group)
        for along in range(other)
        for one in range(start, min(start + group, grouped))
    ]
    found = waves.touched(grouped, other, group, processors)
    again = other_again = other_later = 0
    chunks = [order[place : place + processors] for place in range(0, len(order), processors)]
    for place, chunk in enumerate(chunks):
        before = chunks[place - 1] if place else []
        earlier = [tile for one in chunks[:place] for tile in one]
        again += len({a for a, _ in chunk} & {a for a, _ in before})
        other_again += len({b for _, b in chunk} & {b for _, b in before})
        other_later += len(({b for _, b in chunk} & {b for _, b in earlier}) - {b for _, b in before})
    assert found == waves.PanelReads(len(chunks), again, other_again, other_later)


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 9), st.integers(0, 60))
def test_sectors_of_a_strided_tensor_by_brute_force(rows: int, columns: int, step: int, gap: int) -> None:
    strides = (columns * step + gap, step)
    one = Tensor((rows, columns), "float32", strides)
    touched = {4 * (i * strides[0] + j * step) // SECTOR_BYTES for i in range(rows) for j in range(columns)}
    exact = len(touched) * SECTOR_BYTES
    # Rows are taken to start on a sector's edge: off by a sector a run, and by the gaps below one.
    runs = rows if step == 1 else rows * columns
    assert spread_bytes(one) <= exact + (runs + 1) * SECTOR_BYTES
    assert spread_bytes(one) >= rows * columns * 4
    if step >= 8 and step % 8 == 0 and gap % 8 == 0:
        assert spread_bytes(one) >= min(exact, 4 * (1 + (rows - 1) * strides[0] + (columns - 1) * step))


def test_what_a_cache_keeps() -> None:
    assert kept(0.5e6, 1e6) == 1.0
    assert kept(1.2e6, 1e6) == 0.0
    assert 0.0 < kept(0.9e6, 1e6) < kept(0.8e6, 1e6) < 1.0
    assert kept(1.0, 0.0) == 0.0
    assert left(KernelTraffic(0.0, 1e9), 1e8) == pytest.approx(4.4e7)
    assert left(KernelTraffic(3e9, 1e9), 1e8) == pytest.approx(1.9e7)
    assert left(KernelTraffic(0.0, 0.0), 1e8) == 0.0
    assert not math.isnan(left(KernelTraffic(1.0, 1.0), 1.0))


def test_a_product_of_any_size_is_modelled_at_once() -> None:
    """Its result is one that torch can just hold: 2^62 bytes, counted in 63 bits."""
    call = OpCall(name="aten::mm", inputs=(bf16(2**35, 4096), bf16(4096, 2**26)))
    found = traffic(call)
    assert found.read_bytes is not None
    # 132 tiles of 128 x 256 side by side span two sides of a square; one of them may be in the cache already.
    waves_of_tiles = 2**35 / 128 * 2**26 / 256 / 132
    assert found.read_bytes >= waves_of_tiles * math.sqrt(132 * 128 * 256) * 4096 * 2
    # A sample of a grid stands for the whole.
    assert waves.reads(waves.Product(1, 2**17, 2**17, 4096, 2, 2, 2), waves.Tiling(128, 256), **H100) == pytest.approx(
        4 * waves.reads(waves.Product(1, 2**17, 2**15, 4096, 2, 2, 2), waves.Tiling(128, 256), **H100), rel=0.2
    )
