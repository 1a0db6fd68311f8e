"""Outer products and the differences of all pairs that are summed: contractions that are written out."""

from __future__ import annotations

import json
from math import prod

import numpy as np

from gobrrr.analysis.detect.chains import Order, Shape, backward, computing, free, product_of_call, step_of
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Group
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.cost import OpCall, Scalar
from gobrrr.cost.shapes import FMA_FLOP
from gobrrr.model.work import ITEM_BYTES, Work


def all_pairs(evidence: Evidence) -> list[Order]:
    """What writes a large tensor of all pairs that only the sum behind it reads: a contraction written out."""
    found: list[Order] = []
    ordered = computing(evidence) if evidence.machine is not None else []
    for at, behind in enumerate(ordered):
        summed = evidence.group_of(behind)
        if summed.call.name not in (SUM, NORM) or not summed.call.tensors:
            continue
        shape, dims = summed.call.tensors[0].shape, _sum_dims(summed.call)
        pairs = _of_pairs(evidence, ordered[max(at - 2, 0) : at], summed.call, shape)
        run = (*pairs, behind)
        if not pairs or dims is None or len({int(evidence.calls.stream[one]) for one in run}) > 1:
            continue
        if free(evidence, pairs[0]):
            told = {call for one in found for call in one.calls}
            back = tuple(one for one in _backward_of(evidence, run[0], shape) if one not in told)
            order = _outer_order(evidence, run, back, shape, dims)
            found += [order] if order is not None else []
    return found


SUM, NORM = "aten::sum", "aten::linalg_vector_norm"


def _of_pairs(evidence: Evidence, before: list[int], summed: OpCall, shape: Shape) -> tuple[int, ...]:
    """The calls in front of a sum that make what it reads: an outer product; or differences, and their squares."""
    groups = [evidence.group_of(one) for one in before]
    if summed.name == SUM and groups and _outer_shape(groups[-1], "aten::mul") == shape:
        return (before[-1],)
    differences = groups if summed.name == NORM else groups[:-1] if groups and _squares(groups[-1].call) else []
    if not differences or _outer_shape(differences[-1], DIFFERENCE) != shape:
        return ()
    return tuple(before[len(differences) - 1 :])


DIFFERENCE = "aten::sub"


def _squares(call: OpCall) -> bool:
    """Whether a call multiplies each element by itself."""
    if call.name == "aten::pow":
        return any(isinstance(one, Scalar) and one.text in ("2", "2.") for one in call.inputs)
    return call.name == "aten::square" or (
        call.name == "aten::mul" and len({tensor.shape for tensor in call.tensors}) == 1
    )


def _outer_shape(group: Group, pointwise: str) -> Shape | None:
    """What an outer product writes: a product of inner dimension 1, an operation that broadcasts both operands."""
    given = group.call.tensors
    if group.call.name in ("aten::bmm", "aten::mm") and pointwise != DIFFERENCE:
        product = product_of_call(group.call)
        return (
            product.out
            if product is not None and product.inner == 1 and min(product.rows, product.columns) > 1
            else None
        )
    if group.call.name != pointwise or len(given) < 2:
        return None
    try:
        shape = tuple(int(size) for size in np.broadcast_shapes(given[0].shape, given[1].shape))
    except ValueError:
        return None
    most = max(prod(tensor.shape) for tensor in given[:2])
    return shape if most * LEAST_GROWTH <= prod(shape) else None


LEAST_GROWTH = 8
"""A multiplication that broadcasts less is not an outer product."""


def _sum_dims(call: OpCall) -> list[int] | None:
    texts = [one.text for one in call.inputs if isinstance(one, Scalar) and one.text.startswith("[")]
    try:
        dims = json.loads(texts[0]) if texts else None
    except ValueError:
        return None
    return [int(dim) for dim in dims] if isinstance(dims, list) and dims else None


def _outer_order(
    evidence: Evidence, calls: tuple[int, ...], back: tuple[int, ...], shape: Shape, dims: list[int]
) -> Order | None:
    """The same as one contraction: its FLOPs, the operands read and the sum written; backward, as two of them."""
    made = evidence.group_of(calls[0]).call
    gone = {dim % len(shape) for dim in dims}
    left = prod(size for dim, size in enumerate(shape) if dim not in gone)
    item = ITEM_BYTES.get(made.tensors[0].dtype, 4)
    flop = float(FMA_FLOP * prod(shape))
    moved = sum(prod(tensor.shape) for tensor in made.tensors[:2]) * item
    work = Work(
        count="exact", matrix_flop=flop, matrix_dtype=made.tensors[0].dtype, bytes_read=moved, bytes_written=left * item
    )
    best = floor(work, evidence.machine)
    now = float(np.nansum(evidence.calls.floor_ns[[*calls, *back]]))
    products = 3 if back else 1
    if best is None or not now > products * best.ns:
        return None
    kind = "differences" if made.name == DIFFERENCE else "outer"
    return Order((*calls, *back), kind, flop, flop, now, products * best.ns, "", sure=True)


def _backward_of(evidence: Evidence, call: int, shape: Shape) -> list[int]:
    """The calls on tensors of all pairs in the backward pass of the step of a call."""
    groups = np.array(
        [any(tensor.shape == shape for tensor in group.call.tensors) for group in evidence.priced.groups], bool
    )
    calls, step = evidence.calls_where(groups), step_of(evidence)
    return [one for one in calls[step[calls] == step[call]].tolist() if backward(evidence, one)]
