"""Values added into places of a tensor that are named by indices: how many of the places repeat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.cost.arguments import flag
from gobrrr.model.events import I8
from gobrrr.model.work import ITEM_BYTES

NAMES = ("aten::_index_put_impl_", "aten::index_put_", "aten::index_put", "aten::_unsafe_index_put")

BACKWARD = "IndexBackward"


@dataclass(frozen=True)
class Adding:
    """Calls of one kind, each with what it launches (`calls`). `repeated`: share of the values that hit a place again.

    `forward`: the program adds so itself, and no backward pass of indexing does.
    `bytes`: values read, target read and written, and `rows` of values, for one of `count` calls; `counted`: a live run
    saw the share.
    """

    group: Group
    calls: I8
    count: int
    repeated: float
    bytes: float
    rows: float
    counted: bool
    forward: bool


def accumulations(evidence: Evidence) -> list[Adding]:
    """`index_put` calls that accumulate, by kind."""
    found = []
    for index, group in enumerate(evidence.priced.groups):
        if group.call.name not in NAMES or len(tensors(group.call)) < 2:
            continue
        own = np.flatnonzero(evidence.calls.group == index)
        own = np.array([call for call in own.tolist() if _accumulates(evidence, group, call)], dtype=np.int64)
        if len(own):
            found.append(_adding(evidence, group, own))
    return found


def _accumulates(evidence: Evidence, group: Group, call: int) -> bool:
    given = flag(group.call, 3)
    if given is not None:
        return given
    return _in_backward(evidence, call)


def _in_backward(evidence: Evidence, call: int) -> bool:
    """Whether a call belongs to the backward pass of indexing."""
    around = (evidence.events.name_of(row) for row in evidence.ancestors(int(evidence.calls.op[call])))
    return any(BACKWARD in name for name in around)


def _adding(evidence: Evidence, group: Group, own: I8) -> Adding:
    given = tensors(group.call)
    target, values = given[0], given[-1]
    into, added = (float(np.prod(tensor.shape, dtype=np.float64)) for tensor in (target, values))
    item = ITEM_BYTES.get(values.dtype, 4.0)
    seen = _seen(evidence, target.shape)
    # there are no more places than the target has: of more values than that, the rest repeat one
    least = max(1.0 - into / added, 0.0) if added else 0.0
    return Adding(
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
    """The calls and those of operations within theirs, or beside them within the same `index_put` (a sort)."""
    rows = {_outermost(evidence, int(row)) for row in evidence.calls.op[own].tolist()}
    near = np.flatnonzero(np.isin(evidence.calls.op, _rows_within(evidence, rows)))
    return np.union1d(own, near)


def _outermost(evidence: Evidence, row: int) -> int:
    found = row
    for ancestor in evidence.ancestors(row):
        if evidence.events.name_of(ancestor) not in NAMES:
            break
        found = ancestor
    return found


def _rows_within(evidence: Evidence, rows: set[int]) -> I8:
    """Operations of calls that lie within one of `rows`."""
    known = [
        row for row in np.unique(evidence.calls.op).tolist()
        if row >= 0 and (row in rows or any(ancestor in rows for ancestor in evidence.ancestors(row)))
    ]  # fmt: skip
    return np.array(known, dtype=np.int64)


def _seen(evidence: Evidence, shape: tuple[int, ...]) -> float | None:
    """The share of repeated places that a live run saw for a target of this shape."""
    uses = evidence.profile.uses or ()
    text = str(list(shape))
    known = [use.share for use in uses if use.kind == "duplicates" and use.op in NAMES and text in use.shapes]
    shares = [one for one in known if one is not None]
    return max(shares) if shares else None
