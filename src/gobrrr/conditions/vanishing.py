"""What removing calls saves: their time on the device, and the host's time to launch them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.budget.idle import LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.findings.claims import F8, TimeClaim, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of, step_saving
from gobrrr.conditions.common import launching
from gobrrr.model.events import I8


@dataclass(frozen=True)
class Vanishing:
    """Nanoseconds of one step: `at_stake` on the wall, `device_ns` and `idle_ns` at the high end."""

    at_stake: tuple[float, float]
    claim: TimeClaim
    device_ns: float
    idle_ns: float


def vanishing(evidence: Evidence, calls: I8, low: F8, high: F8) -> Vanishing:
    """Each of `calls` saves `low` to `high` (ns), and the same share of the idle time that launching it causes."""
    ns = np.maximum(evidence.calls.ns[calls], 1.0)
    of_first = dict(zip(evidence.calls.first[calls].tolist(), range(len(calls)), strict=True))
    gaps, behind = launching(evidence)
    position = np.array([of_first.get(work, -1) for work in behind.tolist()], dtype=np.int64)
    gaps, position = gaps[position >= 0], position[position >= 0]
    idle = evidence.budget.gaps.of(LAUNCHING, PYTHON_CAUSE)[gaps].astype(np.float64)
    idle_high, idle_low = (idle * np.minimum(part / ns, 1.0)[position] for part in (high, low))
    count = evidence.steps.count
    device = step_saving(evidence, calls, low, high)
    host = path_of(evidence).host_saving(float(idle_low.sum()) / count, float(idle_high.sum()) / count)
    return Vanishing(
        at_stake=(device[0] + host[0], device[1] + host[1]),
        claim=of_calls(calls, low, high)
        + of_gaps(evidence, gaps, idle_high, idle_low, causes=(LAUNCHING, PYTHON_CAUSE)),
        device_ns=float(high.sum()) / count,
        idle_ns=float(idle_high.sum()) / count,
    )
