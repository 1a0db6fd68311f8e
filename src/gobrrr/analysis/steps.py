"""Which part of the trace is a step, and how often it repeats."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.links import Links
from gobrrr.model.events import EventTable, Kind

PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*\d+")
LEAST_MATCH = 0.98
"""Share of launches that must equal the launch one period later for a sequence to count as repeating."""
OUTLIER = 1.2
"""A first step this many times the median of the others is left out of the estimate of the steady step."""
_LONGEST = 200_000
_CANDIDATES = 400


@dataclass(frozen=True)
class Steps:
    """The analysed window [start, stop) and the number of steps in it.

    The window runs from the first step's begin on the host to the end of the last piece of work, on host or device:
    the host may be far ahead of the device, so a step's annotation alone says nothing about the device's time.
    Device work launched before the recording began is not of these steps: the window begins when it is done.
    `begins` are the steps' begins on the host; `marked`: the trace itself says where steps begin.
    """

    start: int
    stop: int
    count: int
    how: str
    begins: tuple[int, ...] = ()
    marked: bool = False

    @property
    def wall_ns(self) -> float:
        """Wall time of one step, the mean over the window."""
        return (self.stop - self.start) / self.count


def find_steps(events: EventTable, links: Links) -> Steps:
    """Annotated steps, else a repetition in the launch sequence, else the whole span as one step."""
    annotated = _annotated(events, links)
    if annotated is not None:
        return annotated
    start, stop = _span(events, links)
    period = _period(events, links)
    if period is not None:
        begins, count = period
        return Steps(start, stop, count, f"{count} repetitions of the same sequence of launches", begins)
    return Steps(start, stop, 1, "the whole trace is taken as one step: no step annotation, no repetition")


def steady(events: EventTable, links: Links, steps: Steps) -> Steps:
    """The steps without the first one where that one is an outlier: the profiler's own start falls into it.

    A step begins when the host begins it and the device is done with what was launched before. Only for three steps
    or more.
    """
    if steps.count < 3 or len(steps.begins) != steps.count or not len(links.device):
        return steps
    launched = np.where(links.launch >= 0, events.start_ns[np.maximum(links.launch, 0)], events.start_ns[links.device])
    end = events.end_ns[links.device]
    begins = [
        max(begin, int(end[launched < begin].max(initial=begin))) if number else steps.start
        for number, begin in enumerate(steps.begins)
    ]
    lengths = np.diff([*begins, steps.stop])
    if lengths[0] <= OUTLIER * np.median(lengths[1:]) or lengths[1:].min() <= 0:
        return steps
    return Steps(begins[1], steps.stop, steps.count - 1, steps.how, steps.begins[1:], steps.marked)


def _annotated(events: EventTable, links: Links) -> Steps | None:
    is_step = np.array([bool(PROFILER_STEP.match(name)) for name in events.names], dtype=bool)
    rows = events.of(Kind.ANNOTATION, Kind.OP)
    rows = rows[is_step[events.name[rows]]] if len(rows) else rows
    rows = rows[events.duration_ns[rows] > 0]
    if not len(rows):
        return None
    # one row a name: the autograd thread may carry a copy
    _, first = np.unique(events.name[rows], return_index=True)
    rows = np.sort(rows[first])
    start = int(events.start_ns[rows].min())
    stop = int(events.end_ns[rows].max())
    stop = max(stop, _last_end(events, links, start, stop))
    begins = tuple(int(value) for value in events.start_ns[rows])
    start = max(start, min(_backlog(events, links), stop - 1))
    how = f"{len(rows)} ProfilerStep annotation{'s' if len(rows) > 1 else ''}"
    return Steps(start, stop, len(rows), how, begins, marked=True)


def _backlog(events: EventTable, links: Links) -> int:
    """The end of the work that the device still had when the recording began: work without a launch, at the front."""
    if not (links.launch >= 0).any() or not (links.launch < 0).any():
        return 0
    start = events.start_ns[links.device]
    first = int(start[links.launch >= 0].min())
    ahead = (links.launch < 0) & (start < first)
    return int(events.end_ns[links.device[ahead]].max()) if ahead.any() else 0


def _last_end(events: EventTable, links: Links, start: int, stop: int) -> int:
    """The end of the last device work that was launched within the steps."""
    if not len(links.device):
        return stop
    launched = np.where(links.launch >= 0, events.start_ns[np.maximum(links.launch, 0)], events.start_ns[links.device])
    inside = (launched >= start) & (launched < stop)
    return int(events.end_ns[links.device[inside]].max()) if inside.any() else stop


def _span(events: EventTable, links: Links) -> tuple[int, int]:
    """From the first to the last device work; without device work, all that the host recorded.

    Where no step is marked, the start of the recording is not the start of a step: what the host did before the first
    piece of device work may belong to none.
    """
    if len(links.device):
        return int(events.start_ns[links.device].min()), int(events.end_ns[links.device].max())
    rows = events.of(Kind.OP, Kind.RUNTIME, Kind.ANNOTATION)
    if not len(rows):
        rows = np.arange(len(events))
    return int(events.start_ns[rows].min()), int(events.end_ns[rows].max())


def _period(events: EventTable, links: Links) -> tuple[tuple[int, ...], int] | None:
    """(host begins, repetitions) of the shortest period of the kernel sequence, if the whole trace repeats it."""
    rows = links.device
    if len(rows) < 8 or len(rows) > _LONGEST or len(np.unique(events.device[rows])) > 1:
        return None
    order = np.argsort(np.where(links.launch >= 0, events.start_ns[np.maximum(links.launch, 0)], -1), kind="stable")
    rows, launch = rows[order], links.launch[order]
    known = launch >= 0
    rows, launch = rows[known], launch[known]
    names = events.name[rows]
    for period in _candidates(names):
        match = float((names[period:] == names[:-period]).mean())
        # all of the trace must be repetitions, but for a ragged edge
        count = round(len(names) / period)
        if match >= LEAST_MATCH and count >= 2 and abs(len(names) - count * period) <= 0.05 * period:
            begins = tuple(int(events.start_ns[launch[min(i * period, len(launch) - 1)]]) for i in range(count))
            return begins, count
    return None


def _candidates(names: NDArray[np.int32]) -> list[int]:
    """Distances at which the rarest early kernels come again, shortest first."""
    if len(names) < 4:
        return []
    values, counts = np.unique(names, return_counts=True)
    rare = values[(counts >= 2)]
    if not len(rare):
        return []
    rare = rare[np.argsort(counts[counts >= 2], kind="stable")][:4]
    found: set[int] = set()
    for value in rare:
        at = np.flatnonzero(names == value)[:_CANDIDATES]
        found.update(int(distance) for distance in at[1:] - at[0])
    return sorted(distance for distance in found if 4 <= distance <= len(names) // 2)[:_CANDIDATES]
