"""Against hardware counters of an H100 80GB HBM3 (Nsight Compute): DRAM bytes and tensor-core operations.

Caches keep some written lines (the last of up to 50 MB), so a counter of writes may be lower than the count.
"""

from __future__ import annotations

import itertools

import pytest

from gobrrr.cost import price
from gobrrr.cost.cache import alone
from gobrrr.model.work import OpCall, Scalar, Tensor

CACHE_BYTES = 50e6


def f32(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


COUNTERS = [
    # op, DRAM bytes read, DRAM bytes written
    (OpCall(name="aten::cos", inputs=(f32(2**26),)), 268_491_776, 248_016_384),
    (OpCall(name="aten::mul", inputs=(f32(2**26), Scalar("2"))), 268_453_888, 248_038_400),
    (OpCall(name="aten::gelu", inputs=(f32(8192, 4096), Scalar(""))), 134_236_928, 113_636_096),
    (OpCall(name="aten::_softmax", inputs=(f32(8192, 4096), Scalar("-1"), Scalar("False"))), 134_236_160, 117_042_944),
    (OpCall(name="aten::sum", inputs=(f32(8192, 4096),)), 134_284_544, 2_392_832),
    (OpCall(name="aten::clone", inputs=(f32(8192, 4096),)), 134_234_368, 121_916_416),
    (OpCall(name="aten::cos", inputs=(f32(2**20),)), 4_237_568, 0),
]


@pytest.mark.parametrize(("call", "read", "written"), COUNTERS)
def test_bytes_of_streaming_ops(call: OpCall, read: int, written: int) -> None:
    work = price(call)
    assert work.bytes_read == pytest.approx(read, rel=0.02)
    assert work.bytes_written is not None
    assert written - 3e6 <= work.bytes_written <= written + CACHE_BYTES


def test_layer_norm_reads_once_and_a_second_time_as_far_as_the_cache_fails() -> None:
    # 213,059,840 bytes were read from DRAM: between one and two passes over 134,217,728.
    inputs = (f32(8192, 4096), Scalar("[4096]"), f32(4096), f32(4096), Scalar("1e-05"))
    work = price(OpCall(name="aten::native_layer_norm", inputs=inputs))
    assert work.bytes_read is not None
    assert work.bytes_read == pytest.approx(134_217_728, rel=0.001)
    assert work.bytes_read <= 213_059_840 <= 2 * work.bytes_read


def test_a_matmul_of_4096() -> None:
    # sm__ops_path_tensor_src_bf16_dst_fp32: 137,438,953,472, to the operation.
    operand = Tensor((4096, 4096), "bfloat16")
    work = price(OpCall(name="aten::mm", inputs=(operand, operand)))
    assert work.matrix_flop == 137_438_953_472
    # 101,737,216 bytes were read: operands come in more than once; 67,108,864 is the least.
    assert work.bytes_read == 67_108_864 < 101_737_216


def test_causal_attention_executes_half_and_some_of_the_diagonal() -> None:
    # 36,507,222,016 operations, 16,800,512 bytes read (of q, k, v, 50,331,648: in the cache already).
    query = Tensor((4, 16, 2048, 64), "bfloat16")
    inputs = (query, query, query, Scalar(""), Scalar("0.0"), Scalar("True"))
    work = price(OpCall(name="aten::scaled_dot_product_attention", inputs=inputs))
    assert work.matrix_flop is not None
    assert work.matrix_flop == 34_376_515_584
    # Tiles of 128 on a diagonal of 2048: 17 / 16 of the triangle at most.
    assert work.matrix_flop <= 36_507_222_016 <= work.matrix_flop * 17 / 16


def i64(*shape: int, strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, "int64", strides)


FETCHES = [
    # op on indices drawn at random, DRAM bytes read
    (
        OpCall(name="aten::nll_loss_forward", inputs=(f32(524288, 512), i64(524288), Scalar(""), Scalar("1"))),
        37_771_008,
    ),
    (
        OpCall(name="aten::nll_loss_forward", inputs=(f32(262144, 1024), i64(262144), Scalar(""), Scalar("1"))),
        18_883_328,
    ),
    (OpCall(name="aten::gather", inputs=(f32(16384, 4096), Scalar("1"), i64(16384, 4096))), 807_982_336),
    (
        OpCall(name="aten::gather", inputs=(Tensor((8192, 16384), "bfloat16"), Scalar("1"), i64(8192, 4096))),
        552_848_128,
    ),
    (OpCall(name="aten::index_select", inputs=(f32(16384, 8192), Scalar("1"), i64(4096))), 545_015_552),
    (
        OpCall(name="aten::scatter_", inputs=(f32(16384, 4096), Scalar("1"), i64(16384, 2048), f32(16384, 2048))),
        663_090_688,
    ),
]


@pytest.mark.parametrize(("call", "read"), FETCHES)
def test_single_elements_are_fetched_in_pieces(call: OpCall, read: int) -> None:
    assert price(call).bytes_read == pytest.approx(read, rel=0.04)


def test_pieces_of_single_elements_by_hand() -> None:
    # One element a row: 64 bytes each; a row of less, the row; an index expanded over rows of 256 bytes, the rows.
    rows = f32(1000, 4096)
    one = price(OpCall(name="aten::gather", inputs=(rows, Scalar("-1"), i64(1000, 1), Scalar("False"))))
    assert one.bytes_read == 1000 * 64 + 1000 * 8
    expanded = i64(4, 10, 64, strides=(10, 1, 0))
    whole = price(OpCall(name="aten::gather", inputs=(f32(4, 100, 64), Scalar("1"), expanded, Scalar("False"))))
    assert whole.bytes_read == 4 * 10 * 64 * 4 + 4 * 10 * 8
    # What is written in part is read first, 32 bytes at a time: one label a row of a one-hot matrix.
    hot = price(OpCall(name="aten::scatter_", inputs=(rows, Scalar("1"), i64(1000, 1), Scalar("1"))))
    assert (hot.bytes_read, hot.bytes_written) == (1000 * 32 + 1000 * 8, 1000 * 32)
    narrow = price(OpCall(name="aten::embedding", inputs=(f32(10**6, 4), i64(1000))))
    assert narrow.bytes_read == pytest.approx(1000 * 64 + 8000, rel=0.002)


@pytest.mark.parametrize(("elements", "pieces", "each"), [(1, 4, 4), (3, 5, 8), (6, 3, 4), (2, 2, 16)])
def test_pieces_touched_by_brute_force(elements: int, pieces: int, each: int) -> None:
    # Every way to draw: the mean number of pieces of 64 bytes that some element falls into.
    draws = list(itertools.product(range(pieces), repeat=elements))
    mean = sum(len(set(draw)) for draw in draws) / len(draws)
    assert alone(elements, pieces * 64, each) == pytest.approx(64 * mean)


def test_item_goes_over_the_host_link_and_waiting_is_no_work() -> None:
    work = price(OpCall(name="aten::_local_scalar_dense", inputs=(Tensor((), "bfloat16"),)))
    assert (work.count, work.link, work.bytes, work.flop) == ("exact", "host", 2, 0)
    unrecorded = price(OpCall(name="aten::_local_scalar_dense"))
    assert (unrecorded.count, unrecorded.link, unrecorded.bytes) == ("bounded", "host", 16)
    assert price(OpCall(name="synchronize")).count == "view"
    assert price(OpCall(name="synchronize")).bytes == 0
