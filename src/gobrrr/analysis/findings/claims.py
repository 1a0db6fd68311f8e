"""Which part of the timeline a finding claims, so that no nanosecond is at stake twice.

Each instant of the analysed window belongs to one unit: a call with device work, the part of an idle gap that has one
cause, or another piece of device work (a copy across the link, a collective). Units are numbered in this order, and
their lengths sum to the window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gobrrr.analysis.budget.idle import IDLE_CAUSES
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import WorkClass
from gobrrr.analysis.replay.graph import F8 as F8  # conditions import it from here
from gobrrr.model.diagnosis import Finding
from gobrrr.model.events import I8


@dataclass(frozen=True)
class TimeClaim:
    """Nanoseconds that are claimed of some units of the window (all steps together); each unit at most once.

    Parallel arrays. `ns`, `low`: the high and the low end of the stake. `beyond`, `beyond_low`: the same of time
    outside the analysed steps, such as a pause that only one step in ten has; no other finding claims that time.
    """

    unit: I8
    ns: F8
    low: F8
    beyond: float = 0.0
    beyond_low: float = 0.0

    def __add__(self, other: TimeClaim) -> TimeClaim:
        """Both claims; where both claim of the same unit, the nanoseconds add up."""
        unit, at = np.unique(np.concatenate([self.unit, other.unit]), return_inverse=True)
        ns, low = np.zeros(len(unit)), np.zeros(len(unit))
        np.add.at(ns, at.reshape(-1), np.concatenate([self.ns, other.ns]))
        np.add.at(low, at.reshape(-1), np.concatenate([self.low, other.low]))
        return TimeClaim(unit, ns, low, self.beyond + other.beyond, self.beyond_low + other.beyond_low)

    @property
    def total(self) -> float:
        """The high end: nanoseconds of all units and outside the analysed steps."""
        return float(self.ns.sum()) + self.beyond


NO_CALLS: I8 = np.empty(0, dtype=np.int64)
"""Indices of no calls."""


@dataclass(frozen=True)
class ClaimedFinding:
    """A finding, and the part of the timeline that it claims.

    `gone`: calls that a remedy fuses into the call before them, so that they are no longer launched (indices into
    `evidence.calls`). `hidden`: too little is at stake as long as the step waits for the host; the finding counts once
    another remedy has shortened the host's time. `told`: the answer lists the finding; False where another finding
    claims the same time, or where it is hidden.
    """

    finding: Finding
    claim: TimeClaim
    gone: I8 = field(default_factory=lambda: NO_CALLS)
    hidden: bool = False
    told: bool = True


NO_CLAIM = TimeClaim(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
"""The claim of a finding about the measurement itself."""


def of_calls(calls: I8, low: F8, high: F8) -> TimeClaim:
    """A claim of `low` to `high` nanoseconds of each of `calls` (indices into `evidence.calls`)."""
    return NO_CLAIM + TimeClaim(calls, high, low)


def of_gaps(
    evidence: Evidence, gaps: I8, ns: F8, low: F8 | None = None, causes: tuple[str, ...] = IDLE_CAUSES
) -> TimeClaim:
    """A claim of `ns` of each of `gaps` (indices into the budget's gaps), in proportion to what each cause has of it.

    `low`: the low end; None: as `ns`.
    """
    columns = np.array([IDLE_CAUSES.index(cause) for cause in causes], dtype=np.int64)
    amounts = evidence.budget.gaps.ns[np.ix_(gaps, columns)].astype(np.float64)
    share = amounts / np.maximum(amounts.sum(axis=1, keepdims=True), 1.0)
    unit = len(evidence.calls) + gaps[:, None] * len(IDLE_CAUSES) + columns
    high, least = (share * ends[:, None] for ends in (ns, ns if low is None else low))
    return NO_CLAIM + TimeClaim(unit.reshape(-1), high.reshape(-1), least.reshape(-1))


def outside(ns: float, low: float) -> TimeClaim:
    """A claim of `low` to `ns` nanoseconds outside the analysed steps, for as many steps as are analysed."""
    return TimeClaim(NO_CLAIM.unit, NO_CLAIM.ns, NO_CLAIM.low, ns, low)


def of_work(evidence: Evidence, work: I8, *, certain: bool = True) -> TimeClaim:
    """A claim of all time that copies and collectives (indices into `links.device`) have for themselves.

    Not `certain`: the low end is 0.
    """
    shift = len(evidence.calls) + evidence.budget.gaps.ns.size
    ns = evidence.budget.owned_ns[work].astype(np.float64)
    return NO_CLAIM + TimeClaim(work + shift, ns, ns if certain else np.zeros_like(ns))


def lengths(evidence: Evidence) -> F8:
    """The length of each unit, in ns."""
    owned = evidence.budget.owned_ns.astype(np.float64)
    owned[evidence.priced.kind == WorkClass.COMPUTE] = 0.0
    return np.concatenate([evidence.calls.ns, evidence.budget.gaps.ns.astype(np.float64).reshape(-1), owned])
