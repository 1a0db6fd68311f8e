"""Which part of the timeline a finding's stake rests on, so that no nanosecond is at stake twice.

Each instant of the analysed window belongs to one unit: a call with device work, an idle stretch as far as one cause
has it, or another piece of device work (a copy across the link, a collective). Units are numbered in this order; their
lengths sum to the window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import CAUSES
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Class
from gobrrr.model.diagnosis import Finding
from gobrrr.model.events import I8

F8 = NDArray[np.float64]


@dataclass(frozen=True)
class Claim:
    """Nanoseconds of the window (all steps together) in some of its units; parallel arrays, a unit at most once.

    `ns`: what the high end of the stake rests on; `low`: what the low end does. `beyond`, `beyond_low`: what both rest
    on outside the analysed steps, such as a pause that only one step in ten has; it is nobody else's.
    """

    unit: I8
    ns: F8
    low: F8
    beyond: float = 0.0
    beyond_low: float = 0.0

    def __add__(self, other: Claim) -> Claim:
        """Both; what is claimed of one unit twice is added up."""
        unit, at = np.unique(np.concatenate([self.unit, other.unit]), return_inverse=True)
        ns, low = np.zeros(len(unit)), np.zeros(len(unit))
        np.add.at(ns, at.reshape(-1), np.concatenate([self.ns, other.ns]))
        np.add.at(low, at.reshape(-1), np.concatenate([self.low, other.low]))
        return Claim(unit, ns, low, self.beyond + other.beyond, self.beyond_low + other.beyond_low)

    @property
    def total(self) -> float:
        """Nanoseconds in all units and beyond."""
        return float(self.ns.sum()) + self.beyond


NO_CALLS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Found:
    """A finding, and the part of the timeline that its stake rests on.

    `gone`: calls that a remedy makes vanish as launches (indices into `evidence.calls`); what is left of their time is
    that of the call before them, with which they are one kernel. `hidden`: the host is what the step waits for, so that
    too little of it is at stake to be told; it counts once another remedy has taken the host's time away. `told`: it
    is one of the answer's findings; False: what it claims is another's, or it is hidden.
    """

    finding: Finding
    claim: Claim
    gone: I8 = field(default_factory=lambda: NO_CALLS)
    hidden: bool = False
    told: bool = True


NOTHING = Claim(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
"""The claim of a finding about the measurement itself."""


def of_calls(calls: I8, low: F8, high: F8) -> Claim:
    """`low` to `high` nanoseconds of each of `calls` (indices into `evidence.calls`)."""
    return NOTHING + Claim(calls, high, low)


def of_gaps(evidence: Evidence, gaps: I8, ns: F8, low: F8 | None = None, causes: tuple[str, ...] = CAUSES) -> Claim:
    """`ns` of each of `gaps` (indices into the budget's gaps), spread over what `causes` have of it.

    Both ends of the stake rest on it if there is no `low`.
    """
    columns = np.array([CAUSES.index(cause) for cause in causes], dtype=np.int64)
    amounts = evidence.budget.gaps.ns[np.ix_(gaps, columns)].astype(np.float64)
    share = amounts / np.maximum(amounts.sum(axis=1, keepdims=True), 1.0)
    unit = len(evidence.calls) + gaps[:, None] * len(CAUSES) + columns
    high, sure = (share * given[:, None] for given in (ns, ns if low is None else low))
    return NOTHING + Claim(unit.reshape(-1), high.reshape(-1), sure.reshape(-1))


def outside(ns: float, low: float) -> Claim:
    """`low` to `ns` nanoseconds that the analysed steps do not hold, in as many steps as they are."""
    return Claim(NOTHING.unit, NOTHING.ns, NOTHING.low, ns, low)


def of_work(evidence: Evidence, work: I8, *, certain: bool = True) -> Claim:
    """All that copies and collectives (indices into `links.device`) have for themselves; compute belongs to calls.

    Not `certain`: only the high end rests on it.
    """
    shift = len(evidence.calls) + evidence.budget.gaps.ns.size
    ns = evidence.budget.owned_ns[work].astype(np.float64)
    return NOTHING + Claim(work + shift, ns, ns if certain else np.zeros_like(ns))


def lengths(evidence: Evidence) -> F8:
    """Nanoseconds of each unit."""
    owned = evidence.budget.owned_ns.astype(np.float64)
    owned[evidence.priced.kind == Class.COMPUTE] = 0.0
    return np.concatenate([evidence.calls.ns, evidence.budget.gaps.ns.astype(np.float64).reshape(-1), owned])
