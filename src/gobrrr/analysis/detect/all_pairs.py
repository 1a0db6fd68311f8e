"""Outer products and differences of all pairs that are then summed: contractions that the program writes out."""

from __future__ import annotations

import json
from math import prod

import numpy as np

from gobrrr.analysis.detect.chains import MultiplicationOrder, Shape, backward, computing, free, product_of_call
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.cost import OpCall, Scalar
from gobrrr.cost.shapes import FMA_FLOP
from gobrrr.model.work import DTYPE_BYTES, Work


def all_pairs(evidence: Evidence) -> list[MultiplicationOrder]:
    """Calls that write a large tensor of all pairs and then sum it, where nothing else reads that tensor."""
    contractions: list[MultiplicationOrder] = []
    ordered = computing(evidence) if evidence.machine is not None else []
    for at, last in enumerate(ordered):
        summed = evidence.group_of(last)
        if summed.call.name not in (SUM, NORM) or not summed.call.tensors:
            continue
        shape, dims = summed.call.tensors[0].shape, _sum_dims(summed.call)
        pairs = _of_pairs(evidence, ordered[max(at - 2, 0) : at], summed.call, shape)
        run = (*pairs, last)
        if not pairs or dims is None or len({int(evidence.calls.stream[call]) for call in run}) > 1:
            continue
        if free(evidence, pairs[0]):
            listed = {call for order in contractions for call in order.calls}
            back = tuple(call for call in _backward_of(evidence, run[0], shape) if call not in listed)
            order = _outer_order(evidence, run, back, shape, dims)
            contractions += [order] if order is not None else []
    return contractions


SUM, NORM, DIFFERENCE = "aten::sum", "aten::linalg_vector_norm", "aten::sub"
"""The operations that sum over pairs, and the one that makes their differences."""


def _of_pairs(evidence: Evidence, before: list[int], summed: OpCall, shape: Shape) -> tuple[int, ...]:
    """The calls before a sum that write its input: an outer product, or differences with or without their squares."""
    groups = [evidence.group_of(call) for call in before]
    if summed.name == SUM and groups and _outer_shape(groups[-1], "aten::mul") == shape:
        return (before[-1],)
    differences = groups if summed.name == NORM else groups[:-1] if groups and _squares(groups[-1].call) else []
    if not differences or _outer_shape(differences[-1], DIFFERENCE) != shape:
        return ()
    return tuple(before[len(differences) - 1 :])


def _squares(call: OpCall) -> bool:
    """Whether a call multiplies each element by itself."""
    if call.name == "aten::pow":
        return any(isinstance(value, Scalar) and value.text in ("2", "2.") for value in call.inputs)
    return call.name == "aten::square" or (
        call.name == "aten::mul" and len({tensor.shape for tensor in call.tensors}) == 1
    )


def _outer_shape(group: CallGroup, pointwise: str) -> Shape | None:
    """The shape that an outer product writes; None for any other call.

    It is a matrix product of inner dimension 1, or an operation `pointwise` that broadcasts both operands.
    """
    operands = group.call.tensors[:2]
    if group.call.name in ("aten::bmm", "aten::mm") and pointwise != DIFFERENCE:
        product = product_of_call(group.call)
        is_outer = product is not None and product.inner == 1 and min(product.rows, product.columns) > 1
        return product.out if product is not None and is_outer else None
    if group.call.name != pointwise or len(operands) < 2:
        return None
    try:
        shape = tuple(int(size) for size in np.broadcast_shapes(*(tensor.shape for tensor in operands)))
    except ValueError:
        return None
    largest = max(prod(tensor.shape) for tensor in operands)
    return shape if largest * LEAST_GROWTH <= prod(shape) else None


LEAST_GROWTH = 8
"""An operation is an outer product if its result has at least this many times the elements of an operand. Chosen."""


def _sum_dims(call: OpCall) -> list[int] | None:
    """The dimensions that a call sums over; None where they are not recorded."""
    texts = [value.text for value in call.inputs if isinstance(value, Scalar) and value.text.startswith("[")]
    try:
        dims = json.loads(texts[0]) if texts else None
    except ValueError:
        return None
    return [int(dim) for dim in dims] if isinstance(dims, list) and dims else None


def _outer_order(
    evidence: Evidence, calls: tuple[int, ...], back: tuple[int, ...], shape: Shape, dims: list[int]
) -> MultiplicationOrder | None:
    """The calls as one contraction, which reads the operands and writes the sum; its backward pass is two of them.

    None where the contraction would not be faster, or its floor is not known.
    """
    pairs = evidence.group_of(calls[0]).call
    dtype = pairs.tensors[0].dtype
    summed = {dim % len(shape) for dim in dims}
    item = DTYPE_BYTES.get(dtype, 4)
    flop = float(FMA_FLOP * prod(shape))
    read = sum(prod(tensor.shape) for tensor in pairs.tensors[:2]) * item
    written = prod(size for dim, size in enumerate(shape) if dim not in summed) * item
    work = Work(count="exact", matrix_flop=flop, matrix_dtype=dtype, bytes_read=read, bytes_written=written)
    best = floor(work, evidence.machine)
    now = float(np.nansum(evidence.calls.floor_ns[[*calls, *back]]))
    products = 3 if back else 1
    if best is None or not now > products * best.ns:
        return None
    kind = "differences" if pairs.name == DIFFERENCE else "outer"
    return MultiplicationOrder((*calls, *back), kind, flop, flop, now, products * best.ns, "", sure=True)


def _backward_of(evidence: Evidence, call: int, shape: Shape) -> list[int]:
    """The calls on tensors of `shape` in the backward pass of the step that launched `call`."""
    calls = evidence.calls_that(lambda group: any(tensor.shape == shape for tensor in group.call.tensors))
    same_step = evidence.step_of_call[calls] == evidence.step_of_call[call]
    return [other for other in calls[same_step].tolist() if backward(evidence, other)]
