"""Values that are added at indices of a tensor (`index_put` with accumulate): how many of the indices repeat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.cost.arguments import flag
from gobrrr.model.events import I8
from gobrrr.model.work import DTYPE_BYTES

INDEX_PUTS = ("aten::_index_put_impl_", "aten::index_put_", "aten::index_put", "aten::_unsafe_index_put")
"""The operations that put values at indices."""

INDEX_BACKWARD = "IndexBackward"
"""Part of the name of the node that is the backward pass of indexing."""


@dataclass(frozen=True)
class Accumulation:
    """Accumulating calls of one kind.

    `calls`: the `count` calls with the calls inside them. `repeated`: share of the values whose index occurred before;
    `counted`: a live run counted it. `bytes`: of values read, target read and written in one call; `rows`: of values in
    one call. `forward`: the program adds them itself; False for the backward pass of indexing.
    """

    group: CallGroup
    calls: I8
    count: int
    repeated: float
    bytes: float
    rows: float
    counted: bool
    forward: bool


def accumulations(evidence: Evidence) -> list[Accumulation]:
    """`index_put` calls that accumulate, by kind."""
    accumulating = []
    for index, group in enumerate(evidence.priced.groups):
        if group.call.name not in INDEX_PUTS or len(tensors(group.call)) < 2:
            continue
        own = np.flatnonzero(evidence.calls.group == index)
        own = np.array([call for call in own.tolist() if _accumulates(evidence, group, call)], dtype=np.int64)
        if len(own):
            accumulating.append(_adding(evidence, group, own))
    return accumulating


def _accumulates(evidence: Evidence, group: CallGroup, call: int) -> bool:
    """Whether a call accumulates, by its argument; where that was not recorded, whether it is a backward pass."""
    accumulate = flag(group.call, 3)
    return accumulate if accumulate is not None else _in_backward(evidence, call)


def _in_backward(evidence: Evidence, call: int) -> bool:
    """Whether a call belongs to the backward pass of indexing."""
    around = (evidence.events.name_of(row) for row in evidence.ancestors(int(evidence.calls.op[call])))
    return any(INDEX_BACKWARD in name for name in around)


def _adding(evidence: Evidence, group: CallGroup, own: I8) -> Accumulation:
    target, *_, values = tensors(group.call)
    into, added = (float(np.prod(tensor.shape, dtype=np.float64)) for tensor in (target, values))
    item = DTYPE_BYTES.get(values.dtype, 4.0)
    seen = _seen(evidence, target.shape)
    # with more values than the target has elements, the rest must repeat an index
    least = max(1.0 - into / added, 0.0) if added else 0.0
    return Accumulation(
        group=group,
        calls=_with_inner(evidence, own),
        count=len(own),
        repeated=least if seen is None else max(seen, least),
        bytes=(added + 2 * min(into, added)) * item,
        rows=added / max(float(np.prod(target.shape[1:], dtype=np.float64)), 1.0),
        counted=seen is not None,
        forward=not any(_in_backward(evidence, call) for call in own.tolist()),
    )


def _with_inner(evidence: Evidence, own: I8) -> I8:
    """The calls, with all other calls within the same outermost `index_put` (such as a sort)."""
    rows = {_outermost(evidence, int(row)) for row in evidence.calls.op[own].tolist()}
    near = np.flatnonzero(np.isin(evidence.calls.op, _rows_within(evidence, rows)))
    return np.union1d(own, near)


def _outermost(evidence: Evidence, row: int) -> int:
    """The outermost `index_put` around one."""
    outermost = row
    for ancestor in evidence.ancestors(row):
        if evidence.events.name_of(ancestor) not in INDEX_PUTS:
            break
        outermost = ancestor
    return outermost


def _rows_within(evidence: Evidence, rows: set[int]) -> I8:
    """The operations of calls within one of `rows`."""
    within = [
        row for row in np.unique(evidence.calls.op).tolist()
        if row >= 0 and (row in rows or any(ancestor in rows for ancestor in evidence.ancestors(row)))
    ]  # fmt: skip
    return np.array(within, dtype=np.int64)


def _seen(evidence: Evidence, shape: tuple[int, ...]) -> float | None:
    """The largest share of repeated indices that a live run saw for a target of this shape; None where it saw none."""
    text = str(list(shape))
    uses = (use for use in evidence.profile.uses or () if use.kind == "duplicates" and use.op in INDEX_PUTS)
    return max((use.share for use in uses if text in use.shapes and use.share is not None), default=None)
