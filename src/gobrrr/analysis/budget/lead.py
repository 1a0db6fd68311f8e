"""A host that runs ahead: work left over from the previous step hides idle time at the begin of a step.

A recording begins with an idle device, a loop does not. Where the host finishes the recorded steps before the device
does, the device still has work for some time b when the next step begins on the host. In the loop, work then begins b
later than in the recording, and b - g later once the device has idled for g. So the first b ns of idle time are not
part of the loop's step; gaps that are shorter in total vanish. A step that waits for the device at its end leaves no
work. Only marked steps show when the host has finished.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.events.intervals import Spans, covered, subtract, union
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.model.events import I8, EventKind, EventTable


def running(
    events: EventTable, links: Links, steps: StepWindow, needed_ns: float = 0.0
) -> tuple[EventTable, StepWindow]:
    """The timeline and its steps as in a running loop; both are unchanged where nothing is hidden.

    The host's events and the end of the window stay. The window begins later by the hidden time, and work before hidden
    gaps moves towards its end. `needed_ns`: the host's time for the window's steps, which nothing hides.
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


def _idle(events: EventTable, links: Links, rows: I8, steps: StepWindow) -> Spans:
    """When the device waits for the host within the window.

    The device's own pause between queued pieces of work is excluded: its median is subtracted from each gap.
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
    """When the host loads data. Its time without the profiler is the least certain, so it is never hidden."""
    rows = events.of(EventKind.OP, EventKind.ANNOTATION, EventKind.PYTHON)
    rows = rows[classify(events.names)[events.name[rows]] == HostCall.INPUT]
    return union(events.start_ns[rows], events.end_ns[rows])
