"""Optimizers, foreach and collectives."""

from __future__ import annotations

import pytest

from gobrrr.cost import price
from gobrrr.cost.collective import bus_factor, kind_of
from gobrrr.model.work import Collective, OpCall, Scalar, Tensor, TensorList


def tensors(*sizes: int) -> TensorList:
    return TensorList(tuple(Tensor((size,), "float32") for size in sizes))


def adam(amsgrad: str = "False") -> OpCall:
    lists = (tensors(1000, 500),) * 4
    numbers = (Scalar("0.001"), Scalar("0.9"), Scalar("0.999"), Scalar("0.01"), Scalar("1e-08"))
    state = tensors(1000, 500) if amsgrad == "True" else TensorList(())
    inputs = (*lists, state, tensors(1, 1), *numbers, Scalar(amsgrad), Scalar("False"))
    return OpCall(name="aten::_fused_adamw_", inputs=inputs)


def test_adam_reads_four_lists_and_writes_three() -> None:
    work = price(adam())
    assert (work.bytes_read, work.bytes_written) == (4 * 6000, 3 * 6000)
    work = price(adam("True"))
    assert (work.bytes_read, work.bytes_written) == (5 * 6000, 4 * 6000)


def test_foreach_in_place_and_not() -> None:
    one = tensors(1000, 500)
    add = price(OpCall(name="aten::_foreach_add_", inputs=(one, one, Scalar("-0.001"))))
    assert (add.bytes_read, add.bytes_written, add.vector_flop) == (12000, 6000, 1500)
    root = price(OpCall(name="aten::_foreach_sqrt", inputs=(one,)))
    assert (root.bytes_read, root.bytes_written) == (6000, 6000)
    zero = price(OpCall(name="aten::_foreach_zero_", inputs=(one,)))
    assert (zero.bytes_read, zero.bytes_written) == (0, 6000)
    norm = price(OpCall(name="aten::_foreach_norm", inputs=(one, Scalar("2"))))
    assert (norm.bytes_read, norm.bytes_written) == (6000, 8)


def test_lists_that_the_profiler_dropped_are_bounded_by_the_launches() -> None:
    kernel = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float, 1, 1, 0>>"
    call = OpCall(name="aten::_foreach_mul_", inputs=(TensorList(()), Scalar("0.9")), kernels=(kernel,))
    assert price(call).count == "unknown"
    work = price(call, blocks=320)
    assert (work.count, work.by_name) == ("bounded", True)
    assert work.bytes_read == work.bytes_written == 320 * 65536 * 4


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"),
        ("_allgather_base", "all_gather"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "send_recv"),
        ("nccl:all_to_all", "all_to_all"),
        ("broadcast", "broadcast"),
        ("aten::mm", ""),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("broadcast", 8, 1.0),
        ("send", 1, 0.0),
    ],
)
def test_bus_factors_by_hand(kind: str, ranks: int, factor: float) -> None:
    assert bus_factor(kind, ranks) == factor


def test_a_ring_all_reduce_simulated() -> None:
    """n - 1 steps of reduce-scatter and n - 1 of all-gather, a chunk of S / n sent in each."""
    for ranks in range(2, 9):
        chunk = 840 / ranks
        sent = sum(chunk for _ in range(2 * (ranks - 1)))
        record = Collective(name="allreduce", dtype="uint8", in_elements=840, out_elements=840, group_size=ranks)
        work = price(OpCall(name="record_param_comms", collective=record))
        assert work.bytes_written == pytest.approx(sent)
        assert work.bytes_read == pytest.approx(sent)
        assert (work.link, work.count) == ("network", "exact")


def test_all_gather_and_reduce_scatter_use_the_larger_side() -> None:
    gather = Collective(name="_allgather_base", dtype="bfloat16", in_elements=100, out_elements=800, group_size=8)
    scatter = Collective(name="_reduce_scatter_base", dtype="bfloat16", in_elements=800, out_elements=100, group_size=8)
    for record in (gather, scatter):
        assert price(OpCall(name="record_param_comms", collective=record)).bytes_written == 1600 * 7 / 8


def test_a_collective_from_its_recorded_inputs() -> None:
    """As torch records it: the tensors, then among others the group's start, stride and size."""
    bucket = TensorList((Tensor((2360832,), ""),))
    blank = (Scalar(""), Scalar(""), Scalar("0"), Scalar(""), Scalar("[]"), Scalar("[]"))
    inputs = (bucket, *blank, Scalar("0"), Scalar("1"), Scalar("2"))
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    work = price(OpCall(name="record_param_comms", inputs=inputs, kernels=(kernel,)))
    assert work.bytes_written == 2360832 * 4
    assert work.by_name


def test_without_the_group_size_it_is_the_least() -> None:
    record = Collective(name="allreduce", dtype="float32", in_elements=100)
    work = price(OpCall(name="nccl:all_reduce", collective=record))
    assert (work.count, work.bytes_written) == ("bounded", 400)


def test_a_recurrent_layer_by_hand() -> None:
    # An LSTM of 10 steps, batch 4, 32 -> 64: weights (256, 32) and (256, 64) for each of 40 tokens.
    weights = TensorList(tuple(Tensor(shape, "") for shape in ((256, 32), (256, 64), (256,), (256,))))
    given, buffer = Tensor((10, 4, 32), "float16"), Tensor((25088,), "float16")
    state = Tensor((1, 4, 64), "float16")
    rest = (Scalar("2"), Scalar("64"), Scalar("0"), Scalar("1"), Scalar("False"), Scalar("0."), Scalar("True"))
    inputs = (given, weights, Scalar("4"), buffer, state, state, *rest, Scalar("False"))
    work = price(OpCall(name="aten::_cudnn_rnn", inputs=inputs))
    assert work.matrix_flop == 2 * 40 * (256 * 32 + 256 * 64)
    assert work.bytes_written == 40 * 64 * 2


def test_the_factors_of_addcmul_are_one_list_or_two() -> None:
    # 8 x 2048 x 4096 in float32. An H100 read 537 MB for the square of the gradient (AdamW), 805 MB for addcdiv.
    def lists(*shape: int) -> TensorList:
        return TensorList((Tensor(shape, "float32"),) * 8)

    whole, one = lists(2048, 4096), Scalar("1")
    square = price(OpCall(name="aten::_foreach_addcmul_", inputs=(whole, whole, whole, one)))
    assert (square.bytes_read, square.bytes_written, square.count) == (2 * 2**28, 2**28, "bounded")
    product = price(OpCall(name="aten::_foreach_addcmul_", inputs=(whole, whole, lists(2048, 1), one)))
    assert (product.bytes_read, product.count) == (2 * 2**28 + 8 * 2048 * 4, "exact")
    quotient = price(OpCall(name="aten::_foreach_addcdiv_", inputs=(whole, whole, whole, one)))
    assert (quotient.bytes_read, quotient.bytes_written) == (3 * 2**28, 2**28)
    assert quotient.bytes_read == pytest.approx(805_371_904, rel=0.001)
