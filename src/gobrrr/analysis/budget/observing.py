"""When the host runs the code that records the step: between two steps, and in wrappers around the program."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from gobrrr.model.events import I8, EventKind, EventTable
from gobrrr.model.frame_names import is_users
from gobrrr.model.tree import HOST_KINDS, parents

OBSERVER = "gobrrr/"
"""The folder of this package, as the profiler names it."""
PASSING = re.compile(
    r"torch/(profiler/|autograd/profiler\.py|_ops\.py|_jit_internal\.py)|\S*contextlib\.py\(|<built-in |ProfilerStep"
)
"""What the observer's frames call for themselves."""


def observing(events: EventTable, at: I8) -> NDArray[np.bool_]:
    """For each stretch between two instants of `at` (sorted begins and ends of events), whether a thread is in a frame
    of this package, or in what such a frame calls for itself. The program, which such a frame calls too, is excluded.
    """
    names = [
        (name.startswith(OBSERVER) and not is_users(name), PASSING.match(name) is not None) for name in events.names
    ]
    is_observer, passing = np.array(names or [(False, False)]).T
    result = np.zeros(max(len(at) - 1, 0), dtype=bool)
    frames = events.of(EventKind.PYTHON)
    threads = np.unique(events.thread[frames[is_observer[events.name[frames]]]])
    if not len(threads):
        return result
    around = parents(events)
    for thread in threads.tolist():
        rows = events.of(*HOST_KINDS)
        rows = rows[events.thread[rows] == thread]
        inside = _innermost(events, around, rows, at[:-1])
        while len(skipped := np.flatnonzero((inside >= 0) & passing[events.name[np.maximum(inside, 0)]])):
            inside[skipped] = around[inside[skipped]]
        result |= (inside >= 0) & is_observer[events.name[np.maximum(inside, 0)]]
    return result


def _innermost(events: EventTable, around: I8, rows: I8, when: I8) -> I8:
    """The innermost of a thread's events `rows` at each instant; -1 for none."""
    rows = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows]))]
    place = np.searchsorted(events.start_ns[rows], when, side="right") - 1
    row = np.where(place >= 0, rows[np.maximum(place, 0)], -1)
    while len(ended := np.flatnonzero((row >= 0) & (events.end_ns[np.maximum(row, 0)] <= when))):
        row[ended] = around[row[ended]]
    return row
