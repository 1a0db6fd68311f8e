"""Against hardware counters of an H100 80GB HBM3 (Nsight Compute): DRAM bytes and tensor-core operations.

Caches keep some written lines (the last of up to 50 MB), so a counter of writes may be lower than the count.
"""

from __future__ import annotations

import pytest

from gobrrr.cost import price
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
