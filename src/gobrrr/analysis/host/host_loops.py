"""Loops on the host whose launches cost more than their work: many small operations in each turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.intervals import Spans, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.loops import StepLoop, find_loops, nodes_of, work_of
from gobrrr.analysis.host.optimizers import begun_inside, optimizer_spans
from gobrrr.analysis.host.update_loops import VIEW_OPS, update_loops
from gobrrr.analysis.pricing.roofline import floor, joined
from gobrrr.model.diagnosis import Place
from gobrrr.model.events import I8, EventKind

LEAST_LAUNCHES_PER_TURN = 2
"""The least number of launches per turn. A loop that only indexes counts to the loop around it."""

MOST_LOOPS = 2_000
"""Loops that are examined, outer loops first. Chosen, not measured: it bounds the time."""

MOST_TO_READ = 6
"""The most operations per number read in a turn whose purpose is to read numbers. Chosen, not measured."""

DEPENDENCE_RANK = {"no": 0, "sum": 0, "unknown": 1, "yes": 2}
"""Of two nested loops, the one with the lower rank is reported, because more can be done about it."""


@dataclass(frozen=True)
class CostlyLoop:
    """A loop and its device work (into `links.device`), that of its backward pass included.

    `ops`: rows of the operations that the program calls in it; `issued`: how much the host issues for it: on a GPU the
    device work, on a CPU `ops` and the work of the backward pass; `reads`: how many numbers the program reads in the
    whole loop; `computing`: operations per turn, without those reads and views; both are 0 for a trace. `deep`: all
    turns, including those of nested loops that are as independent: heads times rows.
    """

    loop: StepLoop
    work: I8
    ops: I8
    issued: int
    reads: int = 0
    computing: float = 0.0
    deep: int = 0

    @property
    def turns(self) -> int:
        """How many turns the loop has."""
        return len(self.loop.begins)

    @property
    def for_reading(self) -> bool:
        """Whether the purpose of its turns is to read numbers."""
        return (
            self.loop.apart
            and 2 * self.reads >= self.turns
            and self.computing * self.turns <= MOST_TO_READ * self.reads
        )


def find_host_loops(evidence: Evidence) -> list[CostlyLoop]:
    """Disjoint loops whose work takes less time than its launches; without updates (O11) and optimizers."""
    loops = sorted(find_loops(evidence), key=lambda loop: (loop.begins[0], -loop.stop))[:MOST_LOOPS]
    updated, ops = _updates(evidence), _operations(evidence) if loops else {}
    costly = [found for loop in loops if (found := _costly(evidence, loop, ops, updated)) is not None]
    costly.sort(key=lambda found: (DEPENDENCE_RANK[found.loop.depends], found.loop.begins[0], -found.loop.stop))
    kept: list[CostlyLoop] = []
    for found in costly:
        if all(found.loop.stop <= other.loop.begins[0] or found.loop.begins[0] >= other.loop.stop for other in kept):
            kept.append(replace(found, deep=_deep(found, costly)))
    turns = Counter[str | None]()
    for found in kept:
        turns[found.loop.source] += found.turns
    return sorted(kept, key=lambda found: (-turns[found.loop.source], found.loop.begins[0]))


def _deep(loop: CostlyLoop, loops: list[CostlyLoop]) -> int:
    """The turns of the loop, or of the nested loops at the line with most turns."""
    turns = Counter[str | None]({loop.loop.source: loop.turns})
    for other in loops:
        inside = loop.loop.begins[0] <= other.loop.begins[0] and other.loop.stop <= loop.loop.stop
        if inside and other is not loop and DEPENDENCE_RANK[other.loop.depends] <= DEPENDENCE_RANK[loop.loop.depends]:
            turns[other.loop.source] += other.turns
    return max(turns.values())


def waits_within(evidence: Evidence, waits: I8, loops: list[CostlyLoop]) -> I8:
    """Those of `waits` that begin within one of the loops."""
    start = evidence.events.start_ns[waits].tolist()
    return waits[[any(loop.loop.begins[0] <= at < loop.loop.stop for loop in loops) for at in start]]


def batchable(evidence: Evidence) -> list[CostlyLoop]:
    """The loops with independent turns, or where there are none, those for which it is not known; without loops whose
    purpose is to read numbers."""
    loops = [loop for loop in evidence.host_loops if not loop.for_reading]
    return [loop for loop in loops if loop.loop.apart] or [loop for loop in loops if loop.loop.depends == "unknown"]


def _costly(evidence: Evidence, loop: StepLoop, ops: dict[int, I8], updated: I8) -> CostlyLoop | None:
    """The loop with its work; None where its launches are few, or cost less than its work, or it is an update."""
    events, links = evidence.events, evidence.priced.links
    work, own_ops = work_of(evidence, loop), ops[int(events.thread[loop.row])]
    first, last = np.searchsorted(events.start_ns[own_ops], (loop.begins[0], loop.stop))
    own_ops = own_ops[first:last]
    backward = int((events.start_ns[np.maximum(links.launch[work], 0)] >= loop.stop).sum())
    issued = len(work) if evidence.device.asynchronous else len(own_ops) + backward
    least = 1 if loop.calls else LEAST_LAUNCHES_PER_TURN
    if issued < least * len(loop.begins):
        return None
    durations = events.duration_ns[links.device[work]]
    if len(durations) and np.median(durations) >= path_of(evidence).host_per_launch:
        return None
    if _is_update(evidence, loop, updated, issued):
        return None
    return CostlyLoop(loop, work, own_ops, issued, *_reads(evidence, loop))


def _operations(evidence: Evidence) -> dict[int, I8]:
    """The operations that the program calls itself, by thread, in order."""
    events = evidence.events
    rows = np.flatnonzero((events.kind == EventKind.OP) & (evidence.priced.links.op_parent < 0))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    thread = events.thread[rows]
    return {number: rows[thread == number] for number in np.unique(events.thread).tolist()}


def _updates(evidence: Evidence) -> I8:
    """When each operation of an update loop begins: another condition reports those."""
    rows = [loop.rows for loop in update_loops(evidence)]
    return np.sort(evidence.events.start_ns[np.concatenate(rows)]) if rows else np.empty(0, dtype=np.int64)


def _is_update(evidence: Evidence, loop: StepLoop, updated: I8, work: int) -> bool:
    events = evidence.events
    inside = np.searchsorted(updated, loop.stop) - np.searchsorted(updated, loop.begins[0])
    spans = optimizer_spans(events)
    optimizer = begun_inside(events, np.array([loop.row]), spans, events.start_ns[spans])
    return 2 * int(inside) >= work or bool(optimizer[0])


def _reads(evidence: Evidence, loop: StepLoop) -> tuple[int, float]:
    """(numbers that the program reads in a loop, computing operations per turn)."""
    seen = evidence.profile.seen
    if seen is None or not loop.calls:
        return 0, 0.0
    names = [call.call.name.removeprefix("aten::") for call in seen.calls[loop.calls[0] : loop.calls[-1]]]
    computing = sum(name not in VIEW_OPS for name in names)
    return loop.reads, computing / (len(loop.calls) - 1)


def busiest_line(evidence: Evidence, loop: CostlyLoop) -> Place | None:
    """The line with most of a loop's operations; None where that is the loop's own line, or is not known."""
    events, seen = evidence.events, evidence.profile.seen
    if seen is None:
        return None
    inside = (events.start_ns >= loop.loop.begins[0]) & (events.start_ns < loop.loop.stop) & (evidence.sites >= 0)
    rows = np.flatnonzero(inside & (events.kind == EventKind.OP) & (events.thread == events.thread[loop.loop.row]))
    lines = [seen.sites[site].user for site in evidence.sites[rows].tolist()]
    source, count = next(iter(Counter(lines).most_common(1)), (None, 0))
    if source is None or source == loop.loop.source:
        return None
    on_line = rows[[line == source for line in lines]]
    return Place(op=longest(evidence, on_line), source=source, count=float(count))


def longest(evidence: Evidence, rows: I8) -> str | None:
    """The name with the largest total time among the operations `rows`; None for no rows."""
    spent = Counter[str]()
    for row, ns in zip(rows.tolist(), evidence.events.duration_ns[rows].tolist(), strict=True):
        spent[evidence.events.name_of(row)] += ns
    return next((name for name, _ in spent.most_common(1)), None)


def inside_of(evidence: Evidence, loops: list[CostlyLoop]) -> NDArray[np.bool_]:
    """For each piece of device work, whether it belongs to one of the loops."""
    inside = np.zeros(len(evidence.priced.links.device), dtype=bool)
    for loop in loops:
        inside[loop.work] = True
    return inside


def together_floors(evidence: Evidence) -> NDArray[np.float64]:
    """The floor of each call in ns. Calls of a loop with independent turns have their part of the floor of one
    operation on all turns, which reads once what the turns read repeatedly."""
    floors = evidence.calls.floor_ns.copy()
    for host_loop in evidence.host_loops:
        calls = np.flatnonzero(inside_of(evidence, [host_loop])[evidence.calls.first])
        floors[calls] *= together_share(evidence, host_loop.loop, calls)
    return floors


def together_share(evidence: Evidence, loop: StepLoop, calls: I8) -> float:
    """The floor of one operation on all turns, as a share of the sum of the calls' floors."""
    calls = calls[~np.isnan(evidence.calls.floor_ns[calls])]
    apart = float(evidence.calls.floor_ns[calls].sum())
    if not (loop.apart and loop.again_bytes and apart):
        return 1.0
    works = [evidence.group_of(call).work for call in calls.tolist()]
    together = floor(joined(works, loop.again_bytes), evidence.machine)
    return min(together.ns / apart, 1.0) if together is not None else 1.0


def spans_of_loops(evidence: Evidence, loops: list[CostlyLoop]) -> Spans:
    """When the host is in the loops, or in the backward pass of their operations, on the replayed timeline."""
    events = evidence.replayed
    begin, end = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for loop in loops:
        nodes = nodes_of(evidence, loop.loop)
        begin += [events.start_ns[loop.ops[:1]], events.start_ns[nodes]]
        end += [events.end_ns[loop.ops[-1:]], events.end_ns[nodes]]
    return union(np.concatenate(begin), np.concatenate(end))


def share_of(loops: list[CostlyLoop], chosen: list[CostlyLoop]) -> float:
    """The share of the loops' host time that `chosen` has."""
    ns, all_ns = (float(sum(loop.loop.stop - int(loop.loop.begins[0]) for loop in group)) for group in (chosen, loops))
    return min(ns / all_ns, 1.0) if all_ns else 0.0
