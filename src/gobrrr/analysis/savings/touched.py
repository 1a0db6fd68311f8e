"""The time that a change of a step's graph takes away, wherever it is: no step gets shorter by more.

A run of a graph is a system of sums and maxima: where each of its times is less by some ns, no instant of it is earlier
by more than their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.replay.graph import F8, StepGraph


@dataclass(frozen=True)
class Touched:
    """What a change takes away, in ns: `work` of each piece of device work, `host` of each of the host's stretches
    (those between `graph.at`), `waits` of each of its waits."""

    work: F8
    host: F8
    waits: F8

    def between(self, graph: StepGraph, start: int, stop: int) -> float:
        """What is taken away between two instants of the host's recorded clock; work counts when it was called."""
        called = (graph.called >= start) & (graph.called < stop)
        at = graph.at[:-1]
        when = graph.events.start_ns[graph.waits]
        return (
            float(self.work[called].sum())
            + float(self.host[(at >= start) & (at < stop)].sum())
            + float(self.waits[(when >= start) & (when < stop)].sum())
        )


def touched(before: StepGraph, after: StepGraph) -> Touched:
    """What `after`, a changed `before`, no longer has to do or to wait for."""
    lasts = np.where(before.gone, 0.0, before.duration)
    work = np.zeros(len(lasts))
    for one, other in (
        (before.duration, after.duration),
        (before.gap, after.gap),
        (before.latency, after.latency),
        (before.held, after.held),
    ):
        work += _less(np.where(before.gone, 0.0, one), np.where(after.gone, 0.0, other))
    moved = (before.stream != after.stream) | (before.after != after.after)
    free = moved & ~after.gone
    work[free] = np.maximum(work[free], lasts[free])  # it no longer holds up what was behind it
    awaited = before.after[free & (before.after != after.after)]
    awaited = awaited[awaited >= 0]
    np.maximum.at(work, awaited, lasts[awaited])
    rows = before.waits
    waited = before.events.end_ns[rows] - before.events.start_ns[rows]
    cut = np.where(after.cut & ~before.cut, waited, 0).astype(np.float64)
    return Touched(work=work, host=_less(before.left, after.left), waits=cut)


def _less(before: F8, after: F8) -> F8:
    result: F8 = np.maximum(before - after, 0.0)
    return result
