"""The time that a change takes away from a step's graph, wherever it is: the upper bound of the saving.

A run of a graph consists of sums and maxima: where its times get shorter, no instant of it gets earlier by more than
the sum of the differences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.replay.graph import F8, StepGraph


@dataclass(frozen=True)
class TimeTaken:
    """The time that a change takes away, in ns, of each piece of device work, stretch of the host and wait.

    The host's stretches are those between `graph.at`.
    """

    work: F8
    host: F8
    waits: F8

    def between(self, graph: StepGraph, start: int, stop: int) -> float:
        """The sum between two instants of the host's recorded clock; device work counts when it was launched."""
        called = (graph.called >= start) & (graph.called < stop)
        at = graph.at[:-1]
        when = graph.events.start_ns[graph.waits]
        return (
            float(self.work[called].sum())
            + float(self.host[(at >= start) & (at < stop)].sum())
            + float(self.waits[(when >= start) & (when < stop)].sum())
        )


def touched(before: StepGraph, after: StepGraph) -> TimeTaken:
    """The work, host time and waits that `after`, a changed `before`, no longer has."""
    duration = np.where(before.gone, 0.0, before.duration)
    work = np.zeros(len(duration))
    for old, new in (
        (before.duration, after.duration),
        (before.gap, after.gap),
        (before.latency, after.latency),
        (before.held, after.held),
    ):
        work += _less(np.where(before.gone, 0.0, old), np.where(after.gone, 0.0, new))
    moved = (before.stream != after.stream) | (before.after != after.after)
    free = moved & ~after.gone
    work[free] = np.maximum(work[free], duration[free])  # it no longer delays the work behind it
    awaited = before.after[free & (before.after != after.after)]
    awaited = awaited[awaited >= 0]
    np.maximum.at(work, awaited, duration[awaited])
    rows = before.waits
    waited = before.events.end_ns[rows] - before.events.start_ns[rows]
    cut = np.where(after.cut & ~before.cut, waited, 0).astype(np.float64)
    return TimeTaken(work=work, host=_less(before.left, after.left), waits=cut)


def _less(before: F8, after: F8) -> F8:
    result: F8 = np.maximum(before - after, 0.0)
    return result
