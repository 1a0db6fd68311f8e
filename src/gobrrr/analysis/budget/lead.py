"""A loop that runs ahead: gaps at the begin of a step are hidden by the work that the step before left to do.

A recording begins with an idle device, a loop does not. Where the host is done with the steps and the device is not,
the device still works for that long, b, when the next step begins on the host. Work then begins by b later than in the
recording, and by less after each gap: by b - g where the device has idled for g so far. So the first b of idle time are
no part of a step of the loop; where the gaps are shorter than that, none is. A step that waits for the device at its
end leaves nothing to do. Only marked steps say where the host is done with one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gobrrr.analysis.events.calls import Call, classify
from gobrrr.analysis.events.intervals import Spans, covered, subtract, union
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.steps import Steps
from gobrrr.model.events import I8, EventTable, Kind


def running(events: EventTable, links: Links, steps: Steps, needed_ns: float = 0.0) -> tuple[EventTable, Steps]:
    """The timeline and its steps as a loop goes on with them, both unchanged where it hides nothing.

    The host's events and the end of the window stay; the window begins later by what is hidden, and work in front of
    hidden gaps moves towards its end. `needed_ns`: what the host needs for the window's steps, which nothing hides.
    """
    rows = links.device
    rows = rows[(events.start_ns[rows] >= steps.start) & (events.start_ns[rows] < steps.stop)]
    backlog = max(steps.stop - steps.host_stop, 0) if steps.host_stop is not None else 0
    if not len(rows) or not backlog:
        return events, steps
    gaps = _idle(events, links, rows, steps)
    hidden = max(min(backlog, gaps.length, steps.stop - steps.start - round(needed_ns)), 0)
    begin = events.start_ns[rows]
    idled = covered(gaps, np.full(len(rows), steps.start), begin)
    start = events.start_ns.copy()
    start[rows] = begin + np.maximum(hidden - idled, 0)
    return replace(events, start_ns=start), replace(steps, start=steps.start + hidden)


def _idle(events: EventTable, links: Links, rows: I8, steps: Steps) -> Spans:
    """When the device waits for the host within the window.

    Not its own pause between pieces of work that were queued: as long as the median of those it would pause between
    others as well, had they been.
    """
    start, end = events.start_ns[rows], events.end_ns[rows]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    before = np.concatenate([[steps.start], np.maximum(reach[:-1], steps.start)])
    launch = links.launch[np.isin(links.device, rows)][order]
    queued = (launch >= 0) & (events.start_ns[np.maximum(launch, 0)] <= before)
    queued[0] = False
    pauses = (start - before)[queued & (start >= before)]
    pause = int(np.median(pauses)) if len(pauses) else 0
    late = ~queued & (start - before > pause)
    late[0] = start[0] > steps.start
    idle = union(before[late], start[late] - np.where(np.flatnonzero(late) == 0, 0, pause))
    return subtract(idle, loading(events))


def loading(events: EventTable) -> Spans:
    """When the host loads data: how long that takes without the profiler is the least known, and nothing hides it."""
    rows = events.of(Kind.OP, Kind.ANNOTATION, Kind.PYTHON)
    rows = rows[classify(events.names)[events.name[rows]] == Call.INPUT]
    return union(events.start_ns[rows], events.end_ns[rows])
