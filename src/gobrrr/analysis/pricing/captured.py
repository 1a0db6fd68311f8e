"""Kernels of a replayed CUDA graph, priced by the operations that were dispatched when the graph was captured.

In a trace, the kernels of a replay have no operations. Where a step has as many of these kernels as the capture has
computing operations, the n-th kernel belongs to the n-th operation. Otherwise the graph is priced as a whole: its floor
is the sum of its operations' floors, divided among the kernels in proportion to their durations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.pricing.price import CallGroup, Priced
from gobrrr.analysis.pricing.roofline import Floor, floor
from gobrrr.analysis.pricing.tally import FREE_COUNTS, grouped
from gobrrr.model.events import I8, EventTable, Mask
from gobrrr.model.machine import Machine
from gobrrr.model.recording import Recording
from gobrrr.model.work import UNKNOWN_WORK, OpCall, Work

REPLAY = "CUDA graph replay"
"""The name of a whole graph in the table of calls."""


def with_captured(
    priced: Priced, events: EventTable, steps: StepWindow, seen: Recording | None, machine: Machine | None
) -> Priced:
    """`priced`, with floors for the kernels of replayed graphs; unchanged where no capture was observed completely."""
    calls = [call for call in seen.calls if call.replayed and call.place == "device"] if seen is not None else []
    rows = np.flatnonzero(priced.links.in_graph)
    if not calls or not len(rows) or (seen is not None and seen.notes):
        return priced
    groups, of_call = grouped(calls)
    groups = [replace(group, floor=floor(group.work, machine)) for group in groups]
    real = np.array([group.work.count not in FREE_COUNTS for group in groups], dtype=bool)
    of_call = of_call[real[of_call]]
    start = events.start_ns[priced.links.device[rows]]
    inside = (start >= steps.start) & (start < steps.stop)
    if int(inside.sum()) == len(of_call) * steps.count and len(rows) % len(of_call) == 0:
        return _one_by_one(priced, events, rows, groups, np.tile(of_call, len(rows) // len(of_call)))
    return _as_one(priced, events, rows, inside, groups, of_call, steps.count)


def _one_by_one(priced: Priced, events: EventTable, rows: I8, groups: list[CallGroup], which: I8) -> Priced:
    order = rows[np.argsort(events.start_ns[priced.links.device[rows]], kind="stable")]
    floors = np.array([group.floor.ns if group.floor else np.nan for group in groups])
    return _put(priced, order, groups, which, floors[which])


def _as_one(
    priced: Priced, events: EventTable, rows: I8, inside: Mask, groups: list[CallGroup], of_call: I8, steps: int
) -> Priced:
    """Price all kernels as one group; without a floor where an operation's is not known."""
    works = [groups[group].work for group in of_call.tolist()]
    floors = [groups[group].floor for group in of_call.tolist()]
    known = [floor_ for floor_ in floors if floor_ is not None]
    whole: Floor | None = None
    if len(known) == len(floors) and known:
        computing = sum(floor_.ns for floor_ in known if floor_.bound == "compute")
        moving = sum(floor_.ns for floor_ in known if floor_.bound != "compute")
        side: Literal["compute", "memory"] = "compute" if computing > moving else "memory"
        whole = Floor(
            sum(floor_.ns for floor_ in known),
            side,
            "the graph's operations",
            least_ns=sum(floor_.least_ns for floor_ in known),
            at_most=any(floor_.at_most for floor_ in known),
        )
    group = CallGroup(OpCall(name=REPLAY), _sum(works), whole)
    duration = events.duration_ns[priced.links.device[rows]].astype(np.float64)
    total = float(duration[inside].sum())
    share = duration / total if total else np.zeros(len(rows))
    ns = np.full(len(rows), np.nan) if whole is None else whole.ns * steps * share
    return _put(priced, rows, [group], np.zeros(len(rows), dtype=np.int64), ns)


def _sum(works: list[Work]) -> Work:
    """The sum of the works; unknown where one of them is. `family` stays empty: a graph has no family."""
    note = "by what was dispatched in the capture"
    if not all(work.known for work in works):
        return msgspec.structs.replace(UNKNOWN_WORK, note=note)
    dtypes = {work.matrix_dtype for work in works if work.matrix_flop}
    return Work(
        count="exact" if all(work.count == "exact" for work in works) else "bounded",
        matrix_flop=sum(work.matrix_flop or 0.0 for work in works),
        matrix_dtype=dtypes.pop() if len(dtypes) == 1 else None,
        vector_flop=sum(work.vector_flop or 0.0 for work in works),
        recomputed_flop=sum(work.recomputed_flop for work in works),
        bytes_read=sum(work.bytes_read or 0.0 for work in works),
        bytes_written=sum(work.bytes_written or 0.0 for work in works),
        note=note,
    )


def _put(priced: Priced, rows: I8, groups: list[CallGroup], which: I8, ns: NDArray[np.float64]) -> Priced:
    group, floors = priced.group.copy(), priced.floor_ns.copy()
    group[rows] = which + len(priced.groups)
    floors[rows] = ns
    return replace(priced, groups=(*priced.groups, *groups), group=group, floor_ns=floors)
