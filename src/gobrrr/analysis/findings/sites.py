"""A step's operations as they were dispatched, matched with the profiled ones: the program's line of each operation.

The profiler names a function by its first line. The step whose operations were observed as they were dispatched has the
line itself; for the backward pass, that of the forward operation. The n-th operation of a name in one is the n-th of
that name in the other. Names that do not occur equally often in both are not matched.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gobrrr.analysis.events.steps import StepWindow
from gobrrr.model.events import ABSENT, I8, EventKind, EventTable
from gobrrr.model.recording import Recording
from gobrrr.model.tree import outermost


def dispatched_of(events: EventTable, parent: I8, steps: StepWindow, seen: Recording) -> I8:
    """For each row, its operation's index in `seen.calls`; -1 where not known. `parent`: the operation around it."""
    result = np.full(len(events), ABSENT, dtype=np.int64)
    wanted: dict[str, list[int]] = defaultdict(list)
    for at, call in enumerate(seen.calls):
        wanted[call.call.name].append(at)
    if not wanted or not steps.begins:
        return result
    known = np.array([name in wanted for name in events.names] or [False], dtype=bool)
    # an operation inside another one's kernel is not dispatched on its own
    visible = outermost(parent, known[events.name] & (events.kind == EventKind.OP))
    rows = np.flatnonzero(visible == np.arange(len(events)))
    step = np.searchsorted(np.array(steps.begins), events.start_ns[rows], side="right") - 1
    last = steps.host_stop if steps.host_stop is not None else steps.stop
    inside = (step >= 0) & (events.start_ns[rows] < last)
    rows, step = rows[inside], step[inside]
    order = np.lexsort((events.start_ns[rows], events.name[rows], step))
    rows, step, name = rows[order], step[order], events.name[rows[order]]
    edges = np.flatnonzero((np.diff(step) != 0) | (np.diff(name) != 0)) + 1
    for profiled in np.split(rows, edges):
        dispatched = wanted[events.name_of(int(profiled[0]))] if len(profiled) else []
        if len(dispatched) == len(profiled):
            result[profiled] = dispatched
    below = visible >= 0
    result[below] = result[visible[below]]
    return result
