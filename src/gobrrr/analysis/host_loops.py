"""Loops on the host that cost more than what they compute: many small operations, turn by turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.loops import Loop, find_loops, work_of
from gobrrr.analysis.optimizers import begun_inside, optimizer_spans
from gobrrr.analysis.path import path_of
from gobrrr.analysis.update_loops import FREE, update_loops
from gobrrr.model.events import I8

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

    `reads`: numbers that the program reads in the whole of it;
    `computing`: operations of a turn beside those and views; both 0 for a trace.
    """

    loop: Loop
    work: I8
    reads: int = 0
    computing: float = 0.0

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
    loops = sorted(find_loops(evidence), key=lambda one: (one.begins[0], -one.stop))[:MOST_LOOPS]
    updated = _updates(evidence)
    told = [made for one in loops if (made := _told(evidence, one, updated)) is not None]
    told.sort(key=lambda one: (ORDER[one.loop.depends], one.loop.begins[0], -one.loop.stop))
    kept: list[HostLoop] = []
    for one in told:
        if all(one.loop.stop <= other.loop.begins[0] or one.loop.begins[0] >= other.loop.stop for other in kept):
            kept.append(one)
    turns = Counter[str | None]()
    for one in kept:
        turns[one.loop.source] += one.turns
    return sorted(kept, key=lambda one: (-turns[one.loop.source], one.loop.begins[0]))


def _told(evidence: Evidence, loop: Loop, updated: I8) -> HostLoop | None:
    work = work_of(evidence, loop)
    least = 1 if loop.calls else LEAST_LAUNCHES
    if len(work) < least * len(loop.begins):
        return None
    own = evidence.events.duration_ns[evidence.priced.links.device[work]]
    if np.median(own) >= path_of(evidence).host_per_launch or _is_update(evidence, loop, updated, len(work)):
        return None
    return HostLoop(loop, work, *_reads(evidence, loop))


def _updates(evidence: Evidence) -> I8:
    """When each operation of a loop over many tensors begins that another condition tells of."""
    rows = [one.rows for one in update_loops(evidence)]
    return np.sort(evidence.events.start_ns[np.concatenate(rows)]) if rows else np.empty(0, dtype=np.int64)


def _is_update(evidence: Evidence, loop: Loop, updated: I8, work: int) -> bool:
    events = evidence.events
    inside = np.searchsorted(updated, loop.stop) - np.searchsorted(updated, loop.begins[0])
    spans = optimizer_spans(events)
    optimizer = begun_inside(events, np.array([loop.row]), spans, events.start_ns[spans])
    return 2 * int(inside) >= work or bool(optimizer[0])


def _reads(evidence: Evidence, loop: Loop) -> tuple[int, float]:
    """(numbers that the program reads in a loop, operations of a turn that compute)."""
    if evidence.seen is None or not loop.calls:
        return 0, 0.0
    names = [one.call.name.removeprefix("aten::") for one in evidence.seen.calls[loop.calls[0] : loop.calls[-1]]]
    computing = sum(one not in FREE for one in names)
    return loop.reads, computing / (len(loop.calls) - 1)


def inside_of(evidence: Evidence, loops: list[HostLoop]) -> NDArray[np.bool_]:
    """One flag a piece of device work: whether it is of one of the loops."""
    inside = np.zeros(len(evidence.priced.links.device), dtype=bool)
    for one in loops:
        inside[one.work] = True
    return inside


def spans_of_loops(loops: list[HostLoop]) -> tuple[I8, I8]:
    """(begins, ends) on the host, as recorded."""
    return (
        np.array([int(one.loop.begins[0]) for one in loops], dtype=np.int64),
        np.array([one.loop.stop for one in loops], dtype=np.int64),
    )


def share_of(loops: list[HostLoop], mine: list[HostLoop]) -> float:
    """Of the loops' time on the host, the share of some of them."""
    ns, all_ns = (float(sum(one.loop.stop - int(one.loop.begins[0]) for one in some)) for some in (mine, loops))
    return min(ns / all_ns, 1.0) if all_ns else 0.0
