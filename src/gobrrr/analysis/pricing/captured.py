"""Kernels of a replayed CUDA graph, priced by what was dispatched when the graph was captured.

A replay leaves kernels without operations in the trace. Where a capture gave as many pieces of work as operations that
compute, the n-th kernel of a step is the n-th operation's. Otherwise the graph is one piece of work: its floor is the
sum of its operations' floors, shared out by duration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.steps import Steps
from gobrrr.analysis.pricing.price import Group, Priced
from gobrrr.analysis.pricing.roofline import Floor, floor
from gobrrr.analysis.pricing.tally import FREE, grouped
from gobrrr.model.events import I8, EventTable, Mask
from gobrrr.model.machine import Machine
from gobrrr.model.recording import Recording
from gobrrr.model.work import UNKNOWN, OpCall, Work

REPLAY = "CUDA graph replay"


def with_captured(
    priced: Priced, events: EventTable, steps: Steps, seen: Recording | None, machine: Machine | None
) -> Priced:
    """The same with floors for the kernels of replayed graphs; as it was where no capture was seen, or not all."""
    calls = [call for call in seen.calls if call.replayed and call.place == "device"] if seen is not None else []
    rows = np.flatnonzero(priced.links.in_graph)
    if not calls or not len(rows) or (seen is not None and seen.notes):
        return priced
    groups, of_call = grouped(calls)
    groups = [replace(group, floor=floor(group.work, machine)) for group in groups]
    real = np.array([group.work.count not in FREE for group in groups], dtype=bool)
    of_call = of_call[real[of_call]]
    start = events.start_ns[priced.links.device[rows]]
    inside = (start >= steps.start) & (start < steps.stop)
    if int(inside.sum()) == len(of_call) * steps.count and len(rows) % len(of_call) == 0:
        return _one_by_one(priced, events, rows, groups, np.tile(of_call, len(rows) // len(of_call)))
    return _as_one(priced, events, rows, inside, groups, of_call, steps.count)


def _one_by_one(priced: Priced, events: EventTable, rows: I8, groups: list[Group], which: I8) -> Priced:
    order = rows[np.argsort(events.start_ns[priced.links.device[rows]], kind="stable")]
    floors = np.array([group.floor.ns if group.floor else np.nan for group in groups])
    return _put(priced, order, groups, which, floors[which])


def _as_one(
    priced: Priced, events: EventTable, rows: I8, inside: Mask, groups: list[Group], of_call: I8, steps: int
) -> Priced:
    """One group for all; no floor where that of an operation is not known."""
    works = [groups[one].work for one in of_call.tolist()]
    floors = [groups[one].floor for one in of_call.tolist()]
    known = [one for one in floors if one is not None]
    whole: Floor | None = None
    if len(known) == len(floors) and known:
        computing = sum(one.ns for one in known if one.bound == "compute")
        moving = sum(one.ns for one in known if one.bound != "compute")
        side: Literal["compute", "memory"] = "compute" if computing > moving else "memory"
        whole = Floor(
            sum(one.ns for one in known),
            side,
            "the graph's operations",
            least_ns=sum(one.least_ns for one in known),
            at_most=any(one.at_most for one in known),
        )
    group = Group(OpCall(name=REPLAY), _sum(works), whole)
    duration = events.duration_ns[priced.links.device[rows]].astype(np.float64)
    total = float(duration[inside].sum())
    share = duration / total if total else np.zeros(len(rows))
    ns = np.full(len(rows), np.nan) if whole is None else whole.ns * steps * share
    return _put(priced, rows, [group], np.zeros(len(rows), dtype=np.int64), ns)


def _sum(works: list[Work]) -> Work:
    """The works added; unknown where one is. `family` stays empty: the graph is no operation of a kind."""
    note = "by what was dispatched in the capture"
    if not all(work.known for work in works):
        return msgspec.structs.replace(UNKNOWN, note=note)
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


def _put(priced: Priced, rows: I8, groups: list[Group], which: I8, ns: NDArray[np.float64]) -> Priced:
    group, floors = priced.group.copy(), priced.floor_ns.copy()
    group[rows] = which + len(priced.groups)
    floors[rows] = ns
    return replace(priced, groups=(*priced.groups, *groups), group=group, floor_ns=floors)
