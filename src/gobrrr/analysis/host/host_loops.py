"""Loops on the host that cost more than what they compute: many small operations, turn by turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.intervals import Spans, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.loops import Loop, find_loops, nodes_of, work_of
from gobrrr.analysis.host.optimizers import begun_inside, optimizer_spans
from gobrrr.analysis.host.update_loops import FREE, update_loops
from gobrrr.analysis.pricing.roofline import floor, joined
from gobrrr.model.diagnosis import Place
from gobrrr.model.events import I8, Kind

LEAST_LAUNCHES = 2
"""Launches a turn of a loop that counts; one that only indexes is the business of the one around it."""

MOST_LOOPS = 2_000
"""Loops that are looked at: those within others come after these."""

MOST_TO_READ = 6
"""Operations for each number that is read, of a turn that is there for these numbers."""

ORDER = {"no": 0, "sum": 0, "unknown": 1, "yes": 2}
"""Of a loop within another, the one that more can be done about is told."""


@dataclass(frozen=True)
class HostLoop:
    """A loop and the device work that it launches (into `links.device`), with what its backward pass launches.

    `ops`: rows of the operations that the program calls in it; `issued`: what the host has to issue for it, on a GPU
    the device work, on a CPU these and what the backward pass does; `reads`: numbers that the program reads in the
    whole of it; `computing`: operations of a turn beside those and views; both 0 for a trace. `deep`: the turns of all
    of it, where loops within it are as free as it is: heads times rows.
    """

    loop: Loop
    work: I8
    ops: I8
    issued: int
    reads: int = 0
    computing: float = 0.0
    deep: int = 0

    @property
    def turns(self) -> int:
        """How many."""
        return len(self.loop.begins)

    @property
    def for_reading(self) -> bool:
        """Whether its turns are there for the numbers that the program reads in them."""
        return (
            self.loop.apart
            and 2 * self.reads >= self.turns
            and self.computing * self.turns <= MOST_TO_READ * self.reads
        )


def find_host_loops(evidence: Evidence) -> list[HostLoop]:
    """Disjoint loops whose work is shorter than the host's time to launch it; without updates (O11) and optimizers."""
    loops = sorted(find_loops(evidence), key=lambda loop: (loop.begins[0], -loop.stop))[:MOST_LOOPS]
    updated, ops = _updates(evidence), _operations(evidence) if loops else {}
    told = [made for one in loops if (made := _told(evidence, one, ops, updated)) is not None]
    told.sort(key=lambda one: (ORDER[one.loop.depends], one.loop.begins[0], -one.loop.stop))
    kept: list[HostLoop] = []
    for loop in told:
        if all(loop.loop.stop <= other.loop.begins[0] or loop.loop.begins[0] >= other.loop.stop for other in kept):
            kept.append(replace(loop, deep=_deep(loop, told)))
    turns = Counter[str | None]()
    for loop in kept:
        turns[loop.loop.source] += loop.turns
    return sorted(kept, key=lambda one: (-turns[one.loop.source], one.loop.begins[0]))


def _deep(loop: HostLoop, told: list[HostLoop]) -> int:
    """The turns of the loop, or of those within it that run most often."""
    turns = Counter[str | None]({loop.loop.source: loop.turns})
    for other in told:
        inside = loop.loop.begins[0] <= other.loop.begins[0] and other.loop.stop <= loop.loop.stop
        if inside and other is not loop and ORDER[other.loop.depends] <= ORDER[loop.loop.depends]:
            turns[other.loop.source] += other.turns
    return max(turns.values())


def waits_within(evidence: Evidence, waits: I8, loops: list[HostLoop]) -> I8:
    """Those of some waits that begin within one of the loops."""
    start = evidence.events.start_ns[waits].tolist()
    return waits[[any(loop.loop.begins[0] <= at < loop.loop.stop for loop in loops) for at in start]]


def batchable(evidence: Evidence) -> list[HostLoop]:
    """The loops whose turns do not need each other, not those that are there to read numbers; where there are none,
    those of which it is not known."""
    loops = [host_loop for host_loop in evidence.host_loops if not host_loop.for_reading]
    return [loop for loop in loops if loop.loop.apart] or [loop for loop in loops if loop.loop.depends == "unknown"]


def _told(evidence: Evidence, loop: Loop, ops: dict[int, I8], updated: I8) -> HostLoop | None:
    events, links = evidence.events, evidence.priced.links
    work, mine = work_of(evidence, loop), ops[int(events.thread[loop.row])]
    first, last = np.searchsorted(events.start_ns[mine], (loop.begins[0], loop.stop))
    mine = mine[first:last]
    behind = int((events.start_ns[np.maximum(links.launch[work], 0)] >= loop.stop).sum())
    issued = len(work) if evidence.device.asynchronous else len(mine) + behind
    least = 1 if loop.calls else LEAST_LAUNCHES
    if issued < least * len(loop.begins):
        return None
    own = events.duration_ns[links.device[work]]
    if len(own) and np.median(own) >= path_of(evidence).host_per_launch:
        return None
    return (
        None
        if _is_update(evidence, loop, updated, issued)
        else HostLoop(loop, work, mine, issued, *_reads(evidence, loop))
    )


def _operations(evidence: Evidence) -> dict[int, I8]:
    """The operations that the program calls, by thread, in order: those in no other one."""
    events = evidence.events
    rows = np.flatnonzero((events.kind == Kind.OP) & (evidence.priced.links.op_parent < 0))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    thread = events.thread[rows]
    return {one: rows[thread == one] for one in np.unique(events.thread).tolist()}


def _updates(evidence: Evidence) -> I8:
    """When each operation of a loop over many tensors begins that another condition tells of."""
    rows = [loop.rows for loop in update_loops(evidence)]
    return np.sort(evidence.events.start_ns[np.concatenate(rows)]) if rows else np.empty(0, dtype=np.int64)


def _is_update(evidence: Evidence, loop: Loop, updated: I8, work: int) -> bool:
    events = evidence.events
    inside = np.searchsorted(updated, loop.stop) - np.searchsorted(updated, loop.begins[0])
    spans = optimizer_spans(events)
    optimizer = begun_inside(events, np.array([loop.row]), spans, events.start_ns[spans])
    return 2 * int(inside) >= work or bool(optimizer[0])


def _reads(evidence: Evidence, loop: Loop) -> tuple[int, float]:
    """(numbers that the program reads in a loop, operations of a turn that compute)."""
    seen = evidence.profile.seen
    if seen is None or not loop.calls:
        return 0, 0.0
    names = [call.call.name.removeprefix("aten::") for call in seen.calls[loop.calls[0] : loop.calls[-1]]]
    computing = sum(name not in FREE for name in names)
    return loop.reads, computing / (len(loop.calls) - 1)


def busiest_line(evidence: Evidence, loop: HostLoop) -> Place | None:
    """The line with most of a loop's operations; None where that is the loop's own, or not known."""
    events, seen = evidence.events, evidence.profile.seen
    if seen is None:
        return None
    inside = (events.start_ns >= loop.loop.begins[0]) & (events.start_ns < loop.loop.stop) & (evidence.sites >= 0)
    rows = np.flatnonzero(inside & (events.kind == Kind.OP) & (events.thread == events.thread[loop.loop.row]))
    lines = [seen.sites[site].user for site in evidence.sites[rows].tolist()]
    source, many = next(iter(Counter(lines).most_common(1)), (None, 0))
    if source is None or source == loop.loop.source:
        return None
    mine = rows[[line == source for line in lines]]
    return Place(op=longest(evidence, mine), source=source, count=float(many))


def longest(evidence: Evidence, rows: I8) -> str | None:
    """The name of the operations that take the most time of some."""
    spent = Counter[str]()
    for row, ns in zip(rows.tolist(), evidence.events.duration_ns[rows].tolist(), strict=True):
        spent[evidence.events.name_of(row)] += ns
    return next((name for name, _ in spent.most_common(1)), None)


def inside_of(evidence: Evidence, loops: list[HostLoop]) -> NDArray[np.bool_]:
    """One flag a piece of device work: whether it is of one of the loops."""
    inside = np.zeros(len(evidence.priced.links.device), dtype=bool)
    for loop in loops:
        inside[loop.work] = True
    return inside


def together_floors(evidence: Evidence) -> NDArray[np.float64]:
    """The floor of each call in ns: of a loop whose turns do not need each other as a part of one operation on all
    turns, which reads once what they read again."""
    floors = evidence.calls.floor_ns.copy()
    for host_loop in evidence.host_loops:
        calls = np.flatnonzero(inside_of(evidence, [host_loop])[evidence.calls.first])
        floors[calls] *= together_share(evidence, host_loop.loop, calls)
    return floors


def together_share(evidence: Evidence, loop: Loop, calls: I8) -> float:
    """The share of a loop's calls' floors that one operation on all turns has as its floor."""
    calls = calls[~np.isnan(evidence.calls.floor_ns[calls])]
    apart = float(evidence.calls.floor_ns[calls].sum())
    if not (loop.apart and loop.again_bytes and apart):
        return 1.0
    works = [evidence.group_of(call).work for call in calls.tolist()]
    together = floor(joined(works, loop.again_bytes), evidence.machine)
    return min(together.ns / apart, 1.0) if together is not None else 1.0


def spans_of_loops(evidence: Evidence, loops: list[HostLoop]) -> Spans:
    """When the host is in the loops, or in the backward pass of what they compute, on the replayed timeline."""
    events = evidence.replayed
    begin, end = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for loop in loops:
        nodes = nodes_of(evidence, loop.loop)
        begin += [events.start_ns[loop.ops[:1]], events.start_ns[nodes]]
        end += [events.end_ns[loop.ops[-1:]], events.end_ns[nodes]]
    return union(np.concatenate(begin), np.concatenate(end))


def share_of(loops: list[HostLoop], mine: list[HostLoop]) -> float:
    """Of the loops' time on the host, the share of some of them."""
    ns, all_ns = (float(sum(loop.loop.stop - int(loop.loop.begins[0]) for loop in some)) for some in (mine, loops))
    return min(ns / all_ns, 1.0) if all_ns else 0.0
