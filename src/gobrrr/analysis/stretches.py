"""Python that goes on for long and launches nothing: building tensors, sleeping, files, anything between operations.

Dispatching an operation has Python around it, about as much each time. A stretch that is many times as long is the
program's own: no graph and no compiler takes it away.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.idle import LAUNCHING, PYTHON
from gobrrr.model.events import I8, Kind

MANY = 10
"""Times the median of what lies before a launch: a stretch that is longer is not the Python around one.
Chosen, not measured: no set of labelled stretches was there to fit it to."""

LEAST_SHARE = 0.02
"""Of the step: a shorter stretch is not looked at, as no finding is made of less."""

UPDATES = ("Optimizer.step#", "Optimizer.zero_grad#")
"""Annotations of torch's own: Python in these is an optimizer's, however long it goes on without a launch."""


def own_python(evidence: Evidence, gaps: I8) -> NDArray[np.bool_]:
    """One flag a gap (of `gaps`, indices into the budget's): whether its Python is a stretch of the program's own."""
    told = evidence.budget.gaps
    python = told.of(PYTHON)[gaps]
    before = told.of(LAUNCHING, PYTHON)[gaps]
    usual = float(np.median(before[before > 0])) if (before > 0).any() else 0.0
    long: NDArray[np.bool_] = (python > MANY * usual) & (python >= LEAST_SHARE * evidence.wall_ns)
    for at in np.flatnonzero(long).tolist():
        long[at] = not _in_update(evidence, int(told.start[gaps[at]]), int(told.stop[gaps[at]]))
    return long


def _in_update(evidence: Evidence, start: int, stop: int) -> bool:
    """Whether most of the stretch lies in an optimizer's call."""
    events = evidence.replayed
    named = np.array([name.startswith(UPDATES) for name in events.names], dtype=bool)
    rows = np.flatnonzero(named[events.name] & (events.kind == Kind.ANNOTATION))
    inside = np.minimum(events.end_ns[rows], stop) - np.maximum(events.start_ns[rows], start)
    return bool(len(rows)) and 2 * int(np.maximum(inside, 0).max()) > stop - start
