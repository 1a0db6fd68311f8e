"""Optimizers and the foreach family: one kernel over lists of tensors.

The profiler drops lists of more than 30 tensors. Their size is then known from the launches alone: one thread block
takes up to CHUNK_ELEMENTS of one tensor, so `blocks` blocks handle at most blocks x CHUNK_ELEMENTS elements.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gobrrr.cost.arguments import flag, number, tensor, tensor_list
from gobrrr.cost.build import copy, vector
from gobrrr.cost.kernels import element_type
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, TensorList, Work

CHUNK_ELEMENTS = 65536
"""Elements that one block of PyTorch's multi_tensor_apply takes (its kChunkSize)."""

CHUNK_NOTE = f"the tensor lists are not recorded: at most {CHUNK_ELEMENTS:,} elements for each thread block launched"
"""The note of a list whose size is bounded by the launches."""

_FLOP: dict[str, int] = {
    "addcmul": 3, "addcdiv": 3, "lerp": 3, "copy": 0, "zero": 0, "sqrt": 1, "norm": 2, "clamp": 2, "sigmoid": 3,
}  # fmt: skip
"""FLOP an element by the word in the operation's name; 1 for every other."""


def fill(call: OpCall, blocks: int | None) -> OpCall | None:
    """The call with one tensor for each unrecorded list, as large as `blocks` can handle; None: nothing to do."""
    lists = [argument for argument in call.inputs if isinstance(argument, TensorList)]
    if blocks is None or blocks <= 0 or not lists or any(tensors.items for tensors in lists):
        return None
    kind = element_type(tuple(name for name in call.kernels if "multi_tensor_apply" in name))
    stand_in = TensorList((Tensor((blocks * CHUNK_ELEMENTS,), kind),))
    inputs = tuple(stand_in if isinstance(argument, TensorList) else argument for argument in call.inputs)
    return msgspec.structs.replace(call, inputs=inputs)


def _written(tensors: Iterable[Tensor]) -> float:
    return sum(write_bytes(tensor.shape, tensor.dtype) for tensor in tensors)


def _update(lists: list[tuple[Tensor, ...]], written: list[tuple[Tensor, ...]], flop: int) -> Work:
    """Every list read once; those in `written` written too."""
    first = lists[0]
    count = sum(numel(tensor.shape) for tensor in first)
    return vector(
        flop=flop * count,
        dtype=first[0].dtype,
        read=read_bytes(*(tensor for each in lists for tensor in each)),
        written=sum(_written(each) for each in written),
    )


@rule("aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_adam", "aten::_fused_adamw", family="optimizer")
def _adam(call: OpCall) -> Work:
    """Reads parameter, gradient and both moments; writes parameter and moments. 15 FLOP an element."""
    parameters, gradients, first, second = (tensor_list(call, place) for place in range(4))
    states = [first, second]
    if flag(call, 11):  # amsgrad
        states.append(tensor_list(call, 4))
    return _update([parameters, gradients, *states], [parameters, *states], 15)


@rule("aten::_fused_sgd_", "aten::_fused_sgd", family="optimizer")
def _sgd(call: OpCall) -> Work:
    parameters, gradients = tensor_list(call, 0), tensor_list(call, 1)
    momentum = [tensor_list(call, 2)] if number(call, 4) not in (None, 0.0) else []
    return _update([parameters, gradients, *momentum], [parameters, *momentum], 6 if momentum else 4)


@rule("aten::_fused_adagrad_", "aten::_fused_adagrad", family="optimizer")
def _adagrad(call: OpCall) -> Work:
    parameters, gradients, sums = (tensor_list(call, place) for place in range(3))
    return _update([parameters, gradients, sums], [parameters, sums], 8)


@rule("aten::_amp_foreach_non_finite_check_and_unscale_", family="optimizer")
@rule("aten::_amp_foreach_non_finite_check_and_unscale", family="optimizer")
def _unscale(call: OpCall) -> Work:
    gradients = tensor_list(call, 0)
    return _update([gradients], [gradients], 2)


@rule("aten::_foreach_norm", "aten::_foreach_max", "aten::_foreach_powsum", family="optimizer")
def _foreach_reduce(call: OpCall) -> Work:
    given = tensor_list(call, 0)
    count = sum(numel(tensor.shape) for tensor in given)
    written = write_bytes((len(given),), given[0].dtype)
    return vector(flop=2 * count, dtype=given[0].dtype, read=read_bytes(*given), written=written)


@rule("aten::_amp_update_scale_", "aten::_amp_update_scale", family="optimizer")
def _scale(call: OpCall) -> Work:
    """A few numbers: the scale, its growth tracker, whether an infinity was found."""
    given = [tensor(call, place) for place in range(3)]
    return vector(flop=2, dtype=given[0].dtype, read=read_bytes(*given), written=read_bytes(*given[:2]))


@rule("aten::_foreach_zero_", family="optimizer")
def _foreach_zero(call: OpCall) -> Work:
    return copy(read=0.0, written=_written(tensor_list(call, 0)))


@rule("aten::_foreach_copy_", family="optimizer")
def _foreach_copy(call: OpCall) -> Work:
    target, source = tensor_list(call, 0), tensor_list(call, 1)
    return copy(read=read_bytes(*source), written=_written(target))


@rule("aten::_foreach_addcmul", "aten::_foreach_addcmul_", family="optimizer")
def _foreach_addcmul(call: OpCall) -> Work:
    """Three lists, of which the factors are one where an optimizer squares the gradient: the call doesn't tell which.

    Factors that differ in shape or layout are two. With equal ones an H100 read 537 MB for the square and 805 MB for
    a product, from arguments that are the same (adamw.foreach and foreach_addcmul_.fp32 in
    bench/results/h100_counters.json).
    """
    target, left, right = (tensor_list(call, place) for place in range(3))
    if left != right:
        return _update([target, left, right], [target], _FLOP["addcmul"])
    work = _update([target, left], [target], _FLOP["addcmul"])
    note = "both factors are taken as the same tensors, the fewest bytes"
    return msgspec.structs.replace(work, count="bounded", note=note)


@rule("aten::_foreach_*", family="optimizer")
def _foreach(call: OpCall) -> Work:
    """Pointwise over lists: every list argument read, one list written (the first, if in place)."""
    name = call.name.partition("_foreach_")[2].rstrip("_")
    lists = [tensor_list(call, place) for place, argument in enumerate(call.inputs) if isinstance(argument, TensorList)]
    if not lists:
        raise Uncounted("no tensor list is recorded")
    return _update(lists, [lists[0]], _FLOP.get(name, 1))
