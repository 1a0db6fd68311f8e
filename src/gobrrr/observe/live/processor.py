"""A CPU as a device: the part of each operation that computes becomes a piece of device work of its own.

On a CPU an operation runs inside its own dispatch, on one thread: the profiler's event holds both. An operation that
has a CPU kernel computes in the time that is its own (not that of operations within it), less what the same event holds
for an operation on one element: that is dispatch. What views, allocates or only calls other operations is dispatch
alone. What merely calls operations that compute (`_to_copy`, `mean` around its `sum`) is dispatch too.
Code that torch.compile generated has no operations: its time within the graph's call is one piece of work that
is not priced.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from gobrrr.model.events import ABSENT, COLUMN_TYPES, I8, EventTable, Kind
from gobrrr.model.tree import parents, sums_below

LAUNCH = "cpuLaunch"
KERNEL_NAME = "CPU {}"
GENERATED = "## Call CompiledFxGraph"
CORRELATION = 1 << 40
"""Beyond the correlation ids that the profiler gives."""

SHORTEST = 0.25
"""Less than this share of an empty operation's time is not told from dispatch."""

LEAST_OWN = 0.5
"""An operation within which others compute for longer than it does itself by this factor only calls them."""

CALLING = 10
"""Empty operations' time that an operation takes at most to prepare what the ones that it calls compute on."""


@dataclass(frozen=True)
class Pieces:
    """Device work made of host time: parallel arrays. `op`: the row that computes."""

    op: I8
    start_ns: I8
    duration_ns: I8


def with_device(events: EventTable, fixed_ns: float) -> EventTable:
    """The same events with the CPU's computing as kernels of device 0; `fixed_ns` is an empty operation's duration."""
    pieces = computing(events, fixed_ns)
    if not len(pieces.op):
        return events
    count = len(pieces.op)
    names = [*events.names, LAUNCH]
    known = {row: KERNEL_NAME.format(events.names[row]) for row in np.unique(events.name[pieces.op]).tolist()}
    place = {row: len(names) + at for at, row in enumerate(known)}
    names += known.values()
    ids = np.arange(count, dtype=np.int64) + CORRELATION
    launch = {
        "kind": np.full(count, Kind.RUNTIME),
        "name": np.full(count, len(events.names)),
        "start_ns": pieces.start_ns,
        "duration_ns": np.zeros(count),
        "thread": events.thread[pieces.op],
        "correlation": ids,
    }
    kernel = {
        "kind": np.full(count, Kind.KERNEL),
        "name": np.array([place[row] for row in events.name[pieces.op].tolist()]),
        "start_ns": pieces.start_ns,
        "duration_ns": pieces.duration_ns,
        "device": np.zeros(count),
        "stream": np.zeros(count),
        "correlation": ids,
    }
    columns = {}
    for key, kind in COLUMN_TYPES.items():
        parts = [getattr(events, key), *(one.get(key, np.full(count, ABSENT)).astype(kind) for one in (launch, kernel))]
        columns[key] = np.concatenate(parts)
    order = np.lexsort((-columns["duration_ns"], columns["start_ns"]))
    return EventTable(
        **{key: column[order] for key, column in columns.items()},
        names=tuple(names), threads=events.threads, texts=events.texts,
    )  # fmt: skip


def computing(events: EventTable, fixed_ns: float) -> Pieces:
    """The stretches of host time in which operations compute, in order of start."""
    wanted = np.array([has_kernel(name) or name.startswith(GENERATED) for name in events.names], dtype=bool)
    rows = events.of(Kind.OP, Kind.ANNOTATION)
    mine = rows[wanted[events.name[rows]]]
    if not len(mine):
        return Pieces(mine, mine, mine)
    around = parents(events, Kind.OP, Kind.ANNOTATION)
    inner = rows[around[rows] >= 0]
    outer = around[inner]
    order = np.argsort(outer, kind="stable")
    inner, outer = inner[order], outer[order]
    first, last = np.searchsorted(outer, mine), np.searchsorted(outer, mine, side="right")
    start, stop = events.start_ns, events.end_ns
    computes = np.zeros(len(events), dtype=np.int64)
    computes[mine] = 1
    computes += sums_below(around, computes)
    found: list[tuple[int, int, int]] = []
    for row, a, b in zip(mine.tolist(), first.tolist(), last.tolist(), strict=True):
        # each operation within leaves half of its recording on either side of its event, in its parent's time
        pieces = _pieces(row, int(start[row]), int(stop[row]), inner[a:b], start, stop, fixed_ns)
        called = inner[a:b][computes[inner[a:b]] > 0]
        least = LEAST_OWN * float((stop[called] - start[called]).sum()), CALLING * fixed_ns
        calling = min(least) if own_kernel(events.name_of(row)) else max(least)
        if _length(pieces) > calling or not len(called):
            found += pieces
    found.sort(key=lambda one: one[1])
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Pieces(columns[:, 0], columns[:, 1], columns[:, 2])


def _length(pieces: list[tuple[int, int, int]]) -> int:
    return sum(length for _, _, length in pieces)


def _pieces(
    row: int, begin: int, end: int, inner: I8, start: I8, stop: I8, fixed_ns: float
) -> list[tuple[int, int, int]]:
    """The operation's own stretches without what its dispatch and that of the operations within it takes."""
    spans, at = [], begin
    for child in inner.tolist():
        if start[child] > at:
            spans.append((at, int(start[child])))
        at = max(at, int(stop[child]))
    if end > at:
        spans.append((at, end))
    dispatch, result = fixed_ns * (1 + len(inner)), []
    for first, last in spans:
        taken = min(dispatch, last - first)
        dispatch -= taken
        length = int(last - first - taken)
        if length > SHORTEST * fixed_ns:
            # one nanosecond inside, so that no operation that ends at this instant owns it
            result.append((row, last - length + (1 if length > 1 else 0), length - (1 if length > 1 else 0)))
    return result


OWN = ("CPU", "SparseCPU")
"""Where a kernel that is meant for the CPU is registered."""


@lru_cache(maxsize=4096)
def has_kernel(name: str) -> bool:
    """Whether an operation computes by a kernel of the CPU's own, rather than calling other operations or viewing."""
    if "::" not in name or name.startswith(("aten::empty", "aten::new_empty", "aten::resize_", "aten::set_")):
        return False
    return any(_computes(schema, (*OWN, "CompositeExplicitAutograd")) for schema in _schemas(name))


@lru_cache(maxsize=4096)
def own_kernel(name: str) -> bool:
    """Whether an operation has a kernel that was written for the CPU, and not only one for all devices.

    The latter mostly calls other operations. What is no operation (a compiler's own code) has one.
    """
    schemas = _schemas(name)
    return not schemas or any(_computes(schema, OWN) for schema in schemas)


def _schemas(name: str) -> list[torch._C.FunctionSchema]:
    try:
        return list(torch._C._jit_get_schemas_for_operator(name))
    except RuntimeError:
        return []


def _computes(schema: torch._C.FunctionSchema, keys: tuple[str, ...]) -> bool:
    given = [one.alias_info for one in schema.returns]
    if given and all(one is not None and not one.is_write for one in given):
        return False  # a view
    full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    try:
        return any(has(full, key) for key in keys)
    except RuntimeError:
        return False


def fixed_ns(events: EventTable, annotation: str) -> float | None:
    """The median duration of the operations that the calibration's annotation holds; None where it was not recorded."""
    marks = events.of(Kind.ANNOTATION, Kind.OP)
    marks = marks[np.array([events.name_of(int(row)) == annotation for row in marks], dtype=bool)]
    if not len(marks):
        return None
    low, high = events.start_ns[marks].min(), events.end_ns[marks].max()
    rows = events.of(Kind.OP)
    inside: NDArray[np.bool_] = (events.start_ns[rows] >= low) & (events.end_ns[rows] <= high)
    adds = np.array([events.name_of(int(row)) == "aten::add" for row in rows[inside]], dtype=bool)
    durations = events.duration_ns[rows[inside][adds]] if adds.any() else np.empty(0)
    return float(np.median(durations)) if len(durations) else None


def without(events: EventTable, annotation: str) -> EventTable:
    """The events without the calibration and what lies within and after it."""
    marks = [row for row in events.of(Kind.ANNOTATION, Kind.OP).tolist() if events.name_of(row) == annotation]
    if not marks:
        return events
    begin = min(int(events.start_ns[row]) for row in marks)
    return events.take(np.flatnonzero(events.start_ns < begin))
