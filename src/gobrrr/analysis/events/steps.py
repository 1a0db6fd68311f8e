"""Which part of a trace is a step, and how often it repeats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr import units
from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.events.intervals import latest
from gobrrr.analysis.events.links import Links
from gobrrr.model.events import I8, EventKind, EventTable

PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*\d+")
LEAST_MATCH = 0.98
"""The share of launches that must equal the launch one period later for the sequence to count as repeating."""
FEW_MISSING = 0.02
"""The largest share of launches without device work (an empty grid has none); beyond it, records are lost."""

OUTLIER = 1.2
"""A first step of more than this many times the median of the others is no steady step, and is left out."""
_CANDIDATES = 400
"""How many occurrences of a kernel, and how many periods, are tried. Chosen, not measured: it bounds the time."""


@dataclass(frozen=True)
class StepWindow:
    """The analysed window [start, stop) and the number of steps in it.

    The window runs from the first step's begin on the host to the end of the last piece of work, on host or device: the
    host may be far ahead of the device, so a step's annotation alone says nothing about the device's time. Device work
    launched before the recording is not part of these steps: the window begins when it is done.
    `begins`: the steps' begins on the host; `host_stop`: the last step's end there; `marked`: the trace itself says
    where steps begin. `missing`: the share of the steps' launches without a device record.
    """

    start: int
    stop: int
    count: int
    how: str
    begins: tuple[int, ...] = ()
    marked: bool = False
    host_stop: int | None = None
    missing: float = 0.0

    @property
    def wall_ns(self) -> float:
        """Wall time of one step, the mean over the window."""
        return (self.stop - self.start) / self.count


def find_steps(events: EventTable, links: Links) -> StepWindow:
    """Annotated steps, else a repetition in the launch sequence, else the whole span as one step."""
    annotated = _annotated(events, links)
    if annotated is not None:
        return annotated
    start, stop = _span(events, links)
    period = _period(events, links)
    if period is not None:
        begins, count = period
        return StepWindow(start, stop, count, f"{count} repetitions of the same sequence of launches", begins)
    return StepWindow(start, stop, 1, "the whole trace is taken as one step: no step annotation, no repetition")


def steady(events: EventTable, links: Links, steps: StepWindow) -> StepWindow:
    """The steps, without the first one where that is an outlier: it contains the profiler's own start.

    A step begins when the host begins it and the device has finished all earlier work. Fewer than three steps stay as
    they are.
    """
    begins = _beginnings(events, links, steps)
    if begins is None:
        return steps
    lengths = np.diff([*begins, steps.stop])
    if lengths[0] <= OUTLIER * np.median(lengths[1:]) or lengths[1:].min() <= 0:
        return steps
    return replace(steps, start=begins[1], count=steps.count - 1, begins=steps.begins[1:])


def without_first(events: EventTable, links: Links, steps: StepWindow) -> StepWindow:
    """The steps without the first one; unchanged for fewer than three."""
    begins = _beginnings(events, links, steps)
    if begins is None:
        return steps
    return replace(steps, start=begins[1], count=steps.count - 1, begins=steps.begins[1:])


def step_lengths(events: EventTable, links: Links, steps: StepWindow) -> NDArray[np.int64]:
    """The length of each step in ns: from its begin, as in `steady`, to the next step's."""
    begins = _beginnings(events, links, steps) or [steps.start, *steps.begins[1:]]
    return np.diff([*begins, steps.stop])


def marks(names: Sequence[str]) -> NDArray[np.bool_]:
    """Which names are the profiler's step annotations."""
    return np.array([bool(PROFILER_STEP.match(name)) for name in names], dtype=bool)


def _beginnings(events: EventTable, links: Links, steps: StepWindow) -> list[int] | None:
    """When each step begins: with the host, but not before earlier work is done; None for fewer than three steps."""
    if steps.count < 3 or len(steps.begins) != steps.count or not len(links.device):
        return None
    launched = np.where(links.launch >= 0, events.start_ns[np.maximum(links.launch, 0)], events.start_ns[links.device])
    begins = latest(launched, events.end_ns[links.device], np.array(steps.begins, dtype=np.int64))
    return [steps.start, *begins[1:].tolist()]


def _annotated(events: EventTable, links: Links) -> StepWindow | None:
    is_step = marks(events.names)
    rows = events.of(EventKind.ANNOTATION, EventKind.OP)
    rows = rows[is_step[events.name[rows]]] if len(rows) else rows
    rows = rows[events.duration_ns[rows] > 0]
    if not len(rows):
        return None
    # one row per name: the autograd thread may repeat an annotation
    _, first = np.unique(events.name[rows], return_index=True)
    rows = np.sort(rows[first])
    missing = _missing(events, links, rows)
    kept = _complete(missing)
    how = units.things(len(kept), "ProfilerStep annotation")
    if left := len(rows) - len(kept):
        how += f" ({left} left out: launches without a device record)"
    rows, missing = rows[kept], missing[kept]
    start, host_stop = int(events.start_ns[rows].min()), int(events.end_ns[rows].max())
    stop = max(host_stop, _last_end(events, links, start, host_stop))
    begins = tuple(int(value) for value in events.start_ns[rows])
    start = max(start, min(_backlog(events, links, start), stop - 1))
    return StepWindow(start, stop, len(rows), how, begins, True, host_stop, float(missing.mean()))


def _missing(events: EventTable, links: Links, rows: I8) -> NDArray[np.float64]:
    """For each annotation, the share of its launches whose work is not in the trace."""
    calls = events.of(EventKind.RUNTIME)
    calls = calls[(classify(events.names)[events.name[calls]] == HostCall.LAUNCH) & (events.correlation[calls] > 0)]
    lost = ~np.isin(events.correlation[calls], events.correlation[links.device])
    order = np.argsort(events.start_ns[calls], kind="stable")
    at, so_far = events.start_ns[calls][order], np.concatenate([[0], np.cumsum(lost[order])])
    first, last = np.searchsorted(at, events.start_ns[rows]), np.searchsorted(at, events.end_ns[rows])
    share: NDArray[np.float64] = (so_far[last] - so_far[first]) / np.maximum(last - first, 1)
    return share


def _complete(missing: NDArray[np.float64]) -> NDArray[np.int64]:
    """The longest run of steps whose launches have their work; all steps if there is none."""
    sound = missing <= FEW_MISSING
    if sound.all() or not sound.any():
        return np.arange(len(missing))
    runs = np.split(np.arange(len(missing)), np.flatnonzero(np.diff(sound.astype(np.int8))) + 1)
    return max((run for run in runs if sound[run[0]]), key=len)


def _backlog(events: EventTable, links: Links, begin: int) -> int:
    """The end of the work that the device still had when the steps began, launched earlier or before the recording."""
    known = links.launch >= 0
    if not known.any():
        return 0
    start = events.start_ns[links.device]
    first = int(start[known].min())
    before = known & (events.start_ns[np.maximum(links.launch, 0)] < begin)
    ahead = before | (~known & (start < first))
    return int(events.end_ns[links.device[ahead]].max()) if ahead.any() else 0


def _last_end(events: EventTable, links: Links, start: int, stop: int) -> int:
    """The end of the last device work that was launched within the steps; of all work where no launch is recorded."""
    if not len(links.device):
        return stop
    known = links.launch >= 0
    if not known.any():
        return int(events.end_ns[links.device].max())
    launched = np.where(known, events.start_ns[np.maximum(links.launch, 0)], events.start_ns[links.device])
    inside = (launched >= start) & (launched < stop)
    return int(events.end_ns[links.device[inside]].max()) if inside.any() else stop


def _span(events: EventTable, links: Links) -> tuple[int, int]:
    """From the first to the last device work; without device work, everything that the host recorded.

    Without step annotations the recording need not begin with a step: the host's time before the first device work may
    belong to none.
    """
    if len(links.device):
        return int(events.start_ns[links.device].min()), int(events.end_ns[links.device].max())
    rows = events.of(EventKind.OP, EventKind.RUNTIME, EventKind.ANNOTATION)
    if not len(rows):
        rows = np.arange(len(events))
    return int(events.start_ns[rows].min()), int(events.end_ns[rows].max())


def _period(events: EventTable, links: Links) -> tuple[tuple[int, ...], int] | None:
    """(host begins, repetitions) of the shortest period of the kernel sequence, if the whole trace repeats it."""
    rows = links.device
    if len(rows) < 8 or len(np.unique(events.device[rows])) > 1:
        return None
    order = np.argsort(np.where(links.launch >= 0, events.start_ns[np.maximum(links.launch, 0)], -1), kind="stable")
    rows, launch = rows[order], links.launch[order]
    known = launch >= 0
    rows, launch = rows[known], launch[known]
    names = events.name[rows]
    for period in _candidates(names):
        match = float((names[period:] == names[:-period]).mean())
        # the whole trace must consist of repetitions, except for 5 % of one at the edge
        count = round(len(names) / period)
        if match >= LEAST_MATCH and count >= 2 and abs(len(names) - count * period) <= 0.05 * period:
            begins = tuple(int(events.start_ns[launch[min(i * period, len(launch) - 1)]]) for i in range(count))
            return begins, count
    return None


def _candidates(names: NDArray[np.int32]) -> list[int]:
    """Distances between occurrences of the rarest repeated kernels, shortest first."""
    if len(names) < 4:
        return []
    values, counts = np.unique(names, return_counts=True)
    rare = values[(counts >= 2)]
    if not len(rare):
        return []
    rare = rare[np.argsort(counts[counts >= 2], kind="stable")][:4]
    distances: set[int] = set()
    for value in rare:
        at = np.flatnonzero(names == value)[:_CANDIDATES]
        distances.update(int(distance) for distance in at[1:] - at[0])
    return sorted(distance for distance in distances if 4 <= distance <= len(names) // 2)[:_CANDIDATES]
