"""Operations whose autograd graph no backward pass uses, by autograd's sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8, EventKind


@dataclass(frozen=True)
class UnusedGraph:
    """Outermost operations that autograd records although no backward pass follows: their rows and numbers of nodes."""

    rows: I8
    nodes: I8


def recorded_in_vain(evidence: Evidence) -> UnusedGraph | None:
    """The operations of the analysed steps; None where there is a backward pass, or autograd records nothing.

    An operation carries the sequence number of the next node. So it makes as many nodes as the next operation's number
    is higher. Without grad mode there is no number; where nothing requires a gradient, the number does not change.
    """
    if evidence.training:
        return None
    events = evidence.events
    rows = events.of(EventKind.OP)
    rows = rows[(events.sequence[rows] >= 0) & (evidence.priced.links.op_parent[rows] < 0)]
    rows = rows[np.lexsort((events.start_ns[rows], events.thread[rows]))]
    nodes = np.where(np.diff(events.thread[rows]) == 0, np.diff(events.sequence[rows]), 0)
    rows = rows[: len(nodes)]
    begin, stop = evidence.recorded_window
    inside = (nodes > 0) & (events.start_ns[rows] >= begin) & (events.start_ns[rows] < stop)
    return UnusedGraph(rows[inside], nodes[inside]) if inside.any() else None
