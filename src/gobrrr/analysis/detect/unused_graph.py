"""Operations whose autograd graph no backward pass uses, by autograd's sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8, Kind


@dataclass(frozen=True)
class InVain:
    """Outermost operations that autograd records for no backward pass: their rows, and the nodes that each makes."""

    rows: I8
    nodes: I8


def recorded_in_vain(evidence: Evidence) -> InVain | None:
    """Those of the analysed steps; None where there is a backward pass, or nothing is recorded.

    The number that an operation has when it begins goes to the next node that is made. So an operation makes as many
    nodes as the number of the one behind it is higher. Without grad mode there is no number; where nothing requires a
    gradient it stays.
    """
    if evidence.training:
        return None
    events, steps = evidence.events, evidence.recorded_steps
    rows = events.of(Kind.OP)
    rows = rows[(events.sequence[rows] >= 0) & (evidence.priced.links.op_parent[rows] < 0)]
    rows = rows[np.lexsort((events.start_ns[rows], events.thread[rows]))]
    nodes = np.where(np.diff(events.thread[rows]) == 0, np.diff(events.sequence[rows]), 0)
    rows = rows[: len(nodes)]
    begin = steps.begins[steps.count - evidence.steps.count] if steps.begins else steps.start
    inside = (nodes > 0) & (events.start_ns[rows] >= begin) & (events.start_ns[rows] < steps.stop)
    return InVain(rows[inside], nodes[inside]) if inside.any() else None
