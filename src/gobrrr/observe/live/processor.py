"""A CPU as a device: the part of each operation that computes becomes a piece of device work.

On a CPU an operation computes inside its own dispatch, on one thread: the profiler's event holds both. An operation
that has a CPU kernel computes in its own time (without operations within it), less its dispatch, which is the duration
of an operation on one element. Operations that make views, allocate, or only call operations that compute (`_to_copy`,
`mean` around its `sum`) are dispatch alone. Code that torch.compile generated has no operations: its time within the
graph's call is one piece of work, which is not priced.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

import numpy as np
import torch
from numpy.typing import NDArray

from gobrrr.model.events import ABSENT, COLUMN_TYPES, I8, EventKind, EventTable
from gobrrr.model.tree import parents, sums_below

CPU_LAUNCH = "cpuLaunch"
KERNEL_NAME = "CPU {}"
"""The names of the launches and kernels that are made here."""
COMPILED_GRAPH_CALL = "## Call CompiledFxGraph"
"""How the profiler's name begins for the call of a compiled graph."""
CORRELATION = 1 << 40
"""The first correlation id of these kernels: above the ids that the profiler gives."""

SHORTEST_COMPUTE = 0.25
"""A shorter stretch, as a share of an empty operation's time, can't be told from dispatch. Chosen."""

LEAST_OWN = 0.5
"""An operation only calls others where its own time is less than this share of the time that they compute. Chosen."""

MOST_CALLING = 10
"""The most that an operation takes to prepare the operations that it calls, in times of an empty operation. Chosen."""


@dataclass(frozen=True)
class ComputePieces:
    """Device work made of host time, as parallel arrays. `op`: the row of the operation that computes."""

    op: I8
    start_ns: I8
    duration_ns: I8


def with_device(events: EventTable, fixed_ns: float) -> EventTable:
    """The same events with the CPU's computing as kernels of device 0; `fixed_ns` is an empty operation's duration."""
    pieces = computing(events, fixed_ns)
    if not len(pieces.op):
        return events
    count = len(pieces.op)
    names = [*events.names, CPU_LAUNCH]
    known = {row: KERNEL_NAME.format(events.names[row]) for row in np.unique(events.name[pieces.op]).tolist()}
    place = {row: len(names) + at for at, row in enumerate(known)}
    names += known.values()
    ids = np.arange(count, dtype=np.int64) + CORRELATION
    launch = {
        "kind": np.full(count, EventKind.RUNTIME),
        "name": np.full(count, len(events.names)),
        "start_ns": pieces.start_ns,
        "duration_ns": np.zeros(count),
        "thread": events.thread[pieces.op],
        "correlation": ids,
    }
    kernel = {
        "kind": np.full(count, EventKind.KERNEL),
        "name": np.array([place[row] for row in events.name[pieces.op].tolist()]),
        "start_ns": pieces.start_ns,
        "duration_ns": pieces.duration_ns,
        "device": np.zeros(count),
        "stream": np.zeros(count),
        "correlation": ids,
    }
    columns = {}
    for key, kind in COLUMN_TYPES.items():
        added = (rows.get(key, np.full(count, ABSENT)).astype(kind) for rows in (launch, kernel))
        columns[key] = np.concatenate([getattr(events, key), *added])
    order = np.lexsort((-columns["duration_ns"], columns["start_ns"]))
    return EventTable(
        **{key: column[order] for key, column in columns.items()},
        names=tuple(names), threads=events.threads, texts=events.texts,
    )  # fmt: skip


def computing(events: EventTable, fixed_ns: float) -> ComputePieces:
    """The stretches of host time in which operations compute, in order of start."""
    wanted = np.array([has_kernel(name) or name.startswith(COMPILED_GRAPH_CALL) for name in events.names], dtype=bool)
    rows = events.of(EventKind.OP, EventKind.ANNOTATION)
    candidates = rows[wanted[events.name[rows]]]
    if not len(candidates):
        return ComputePieces(candidates, candidates, candidates)
    around = parents(events, EventKind.OP, EventKind.ANNOTATION)
    inner = rows[around[rows] >= 0]
    outer = around[inner]
    order = np.argsort(outer, kind="stable")
    inner, outer = inner[order], outer[order]
    first, last = np.searchsorted(outer, candidates), np.searchsorted(outer, candidates, side="right")
    start, stop = events.start_ns, events.end_ns
    computes = np.zeros(len(events), dtype=np.int64)
    computes[candidates] = 1
    computes += sums_below(around, computes)
    found: list[tuple[int, int, int]] = []
    for row, a, b in zip(candidates.tolist(), first.tolist(), last.tolist(), strict=True):
        # recording an inner operation takes time on either side of its event, which counts as its parent's
        pieces = _pieces(row, int(start[row]), int(stop[row]), inner[a:b], start, stop, fixed_ns)
        called = inner[a:b][computes[inner[a:b]] > 0]
        least = LEAST_OWN * float((stop[called] - start[called]).sum()), MOST_CALLING * fixed_ns
        calling = min(least) if own_kernel(events.name_of(row)) else max(least)
        if not len(called) or sum(length for _, _, length in pieces) > calling:
            found += pieces
    found.sort(key=itemgetter(1))
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return ComputePieces(columns[:, 0], columns[:, 1], columns[:, 2])


def _pieces(
    row: int, begin: int, end: int, inner: I8, start: I8, stop: I8, fixed_ns: float
) -> list[tuple[int, int, int]]:
    """(row, start, length) of the operation's own stretches, less its dispatch and that of the operations within it."""
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
        if length > SHORTEST_COMPUTE * fixed_ns:
            # one nanosecond inside, so that no operation that ends at this instant owns it
            result.append((row, last - length + (1 if length > 1 else 0), length - (1 if length > 1 else 0)))
    return result


CPU_DISPATCH_KEYS = ("CPU", "SparseCPU")
"""The dispatch keys of kernels that were written for the CPU."""


@lru_cache(maxsize=4096)
def has_kernel(name: str) -> bool:
    """Whether an operation has a kernel that computes on the CPU, and does not make a view or only call others."""
    if "::" not in name or name.startswith(("aten::empty", "aten::new_empty", "aten::resize_", "aten::set_")):
        return False
    return any(_computes(schema, (*CPU_DISPATCH_KEYS, "CompositeExplicitAutograd")) for schema in _schemas(name))


@lru_cache(maxsize=4096)
def own_kernel(name: str) -> bool:
    """Whether an operation has a kernel that was written for the CPU, and not only one for all devices.

    One for all devices mostly calls other operations. True also for what is no operation (a compiler's own code).
    """
    schemas = _schemas(name)
    return not schemas or any(_computes(schema, CPU_DISPATCH_KEYS) for schema in schemas)


def _schemas(name: str) -> list[torch._C.FunctionSchema]:
    try:
        return list(torch._C._jit_get_schemas_for_operator(name))
    except RuntimeError:
        return []


def _computes(schema: torch._C.FunctionSchema, keys: tuple[str, ...]) -> bool:
    aliases = [result.alias_info for result in schema.returns]
    if aliases and all(alias is not None and not alias.is_write for alias in aliases):
        return False  # a view
    full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    try:
        return any(has(full, key) for key in keys)
    except RuntimeError:
        return False


def fixed_ns(events: EventTable, annotation: str) -> float | None:
    """The median duration of the operations within the calibration's annotation; None where it was not recorded."""
    marks = events.of(EventKind.ANNOTATION, EventKind.OP)
    marks = marks[np.array([events.name_of(int(row)) == annotation for row in marks], dtype=bool)]
    if not len(marks):
        return None
    low, high = events.start_ns[marks].min(), events.end_ns[marks].max()
    rows = events.of(EventKind.OP)
    inside: NDArray[np.bool_] = (events.start_ns[rows] >= low) & (events.end_ns[rows] <= high)
    adds = np.array([events.name_of(int(row)) == "aten::add" for row in rows[inside]], dtype=bool)
    durations = events.duration_ns[rows[inside][adds]] if adds.any() else np.empty(0)
    return float(np.median(durations)) if len(durations) else None


def without(events: EventTable, annotation: str) -> EventTable:
    """The events before the calibration."""
    marks = [row for row in events.of(EventKind.ANNOTATION, EventKind.OP).tolist() if events.name_of(row) == annotation]
    if not marks:
        return events
    begin = min(int(events.start_ns[row]) for row in marks)
    return events.take(np.flatnonzero(events.start_ns < begin))
