"""No nanosecond is at stake twice: if findings claim the same part of the timeline, the more specific one keeps it.

The specific finding names the cause of what the general one shows: a loop over timesteps (O04) makes a step
launch-bound (O01), a norm written by hand (M03) is a chain of pointwise calls (M01). The general finding keeps the rest
and says how much of it belongs to the other. If too little is left, it is dropped, and the specific finding says so.

Threads that wait for a processor (O09) slow down whatever runs, including what other findings are about. So O09 takes
nothing from the others and loses nothing to them.

The units' lengths sum to the window (`claims`), and no finding has more at stake than it keeps. So all other findings
together never have more at stake than the step; what a claim has beyond the analysed steps comes on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from gobrrr import units
from gobrrr.analysis.findings.claims import F8, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import LEAST_STEP_SHARE
from gobrrr.model.diagnosis import Finding

SPECIFIC_FIRST = (
    "O05",  # compiling is a cause of its own, whatever the host would have launched meanwhile
    "O06",  # waiting for the driver is neither launching nor input
    "O07",  # a pause of the collector falls anywhere
    "O08",  # checks and tracers slow down whatever runs
    "R04",  # what grows is why an operation, the host or a concatenation takes so long
    "O14",  # what a hook calls is there for the hook alone
    "C07",  # one operation in a slow form, whatever splits it among threads
    "O12",  # a log line is Python of its own
    "O13",  # what holds the host by its line, of what makes a step wait for it
    "D02",  # a copy that blocks, of all that keeps the input waiting (D01)
    "D01",
    "N02",  # what is reduced again, of all that is reduced
    "N03",
    "N01",
    "R01",  # what is computed again vanishes as a whole
    "R02",
    "R03",
    "C04",  # the wrong type, whatever is done in it
    "C08",
    "C05",  # products that another order leaves out
    "C06",  # one layer's algorithm, of all that a layer costs
    "M02",  # attention's passes, conversions and matmuls vanish together
    "M12",  # a mask, of whatever else the attention's calls could gain
    "C03",  # one float32 contraction, of all contractions
    "C02",
    "M05",
    "M06",  # conversions of weights, of all conversions
    "M07",  # the optimizer's pass over a table, of the optimizer
    "M08",
    "M09",
    "M10",
    "M03",  # a norm's calls, conversions and pointwise calls included
    "M04",
    "O02",
    "O03",  # the optimizer's launches, of all launches
    "O11",  # updates in a loop, of all launches
    "O04",
    "R05",  # what recording takes of each launch
    "O10",  # pieces of a graph: the chains and launches between them
    "M01",
    "M11",  # a share of everything: of the rest, after what is wrong with single calls
    "C01",
    "O01",
)
"""The earlier of two codes keeps what both claim; codes that are not listed come last, in order of their code."""

INDEPENDENT_CODE = "O09"
"""The code whose claim neither takes from others nor loses to them."""


@dataclass(frozen=True)
class _Kept:
    """A finding and the ns that it keeps of each unit, by position in the window's units."""

    found: ClaimedFinding
    ns: F8
    low: F8
    lost: dict[str, float]  # nanoseconds that each other code keeps

    @property
    def shares(self) -> tuple[float, float]:
        """The shares that it keeps of the claims behind its low and its high end."""
        claim = self.found.claim
        return _share(self.low, claim.low, claim.beyond_low), _share(self.ns, claim.ns, claim.beyond)


def settle(findings: Sequence[ClaimedFinding], lengths: F8, steps: int, wall_ns: float) -> list[Finding]:
    """The findings with disjoint stakes, largest first; those about the measurement last.

    `lengths`: nanoseconds of each unit of the window; `steps`: how many steps it holds; `wall_ns`: one step. The sum of
    all high ends is at most the window's length for one step.
    """
    kept = _share_out(sorted(findings, key=_rank), lengths)
    stakes = {part.found.finding.code: _restaked(part, steps, wall_ns) for part in kept}
    dropped = [
        part
        for part in kept
        if part.lost and stakes[part.found.finding.code].at_stake_ns[1] < LEAST_STEP_SHARE * wall_ns
    ]
    for part in dropped:
        del stakes[part.found.finding.code]
    for part in dropped:
        _mention(part, stakes, steps)
    return sorted(stakes.values(), key=lambda stake: (-stake.at_stake_ns[1], -stake.at_stake_ns[0], stake.code))


def _rank(found: ClaimedFinding) -> tuple[int, str]:
    code = found.finding.code
    return SPECIFIC_FIRST.index(code) if code in SPECIFIC_FIRST else len(SPECIFIC_FIRST), code


def _share_out(findings: Sequence[ClaimedFinding], lengths: F8) -> list[_Kept]:
    """Each finding takes of a unit what its claim has beyond the claims before it.

    Two savings on one call are the same nanoseconds, up to the smaller one.
    """
    taken = np.zeros_like(lengths)
    done: list[_Kept] = []
    for found in findings:
        claim = found.claim
        wanted = np.minimum(claim.ns, lengths[claim.unit])
        own, missing = np.zeros_like(lengths), np.zeros_like(lengths)
        if found.finding.code == INDEPENDENT_CODE:
            own[claim.unit] = wanted
            done.append(_Kept(found, own, np.minimum(claim.low, wanted), {}))
            continue
        own[claim.unit] = np.maximum(wanted - taken[claim.unit], 0.0)
        missing[claim.unit] = wanted - own[claim.unit]
        low = np.maximum(np.minimum(claim.low, wanted) - taken[claim.unit], 0.0)
        taken += own
        done.append(_Kept(found, own, low, _lost(missing, done)))
    return done


def _lost(missing: F8, before: Sequence[_Kept]) -> dict[str, float]:
    """The ns of `missing` that each earlier finding keeps, by its code."""
    by_code = {kept.found.finding.code: float(np.minimum(missing, kept.ns).sum()) for kept in before}
    return {code: ns for code, ns in by_code.items() if ns > 0 and code != INDEPENDENT_CODE}


def _restaked(kept: _Kept, steps: int, wall_ns: float) -> Finding:
    """The finding with the stake that it keeps, at most `wall_ns`, and facts that say which findings have the rest."""
    finding, most = kept.found.finding, (float(kept.ns.sum()) + kept.found.claim.beyond) / steps
    low, high = (min(ns * share, most, wall_ns) for ns, share in zip(finding.at_stake_ns, kept.shares, strict=True))
    facts = [
        f"{units.duration(ns / steps)} a step of this belong to {code} and are not counted here"
        for code, ns in kept.lost.items()
        if ns / steps > LEAST_NAMED * finding.at_stake_ns[1]
    ]
    return replace(finding, at_stake_ns=(min(low, high), high), evidence=[*finding.evidence, *facts])


def _share(kept: F8, claimed: F8, beyond: float) -> float:
    total = float(claimed.sum()) + beyond
    return min((float(kept.sum()) + beyond) / total, 1.0) if total > 0 else 1.0


LEAST_NAMED = 0.01
"""A part of the stake that another finding keeps is only named above this share: less changes no figure shown."""


def _mention(dropped: _Kept, stakes: dict[str, Finding], steps: int) -> None:
    """Adds a fact about a dropped finding to the one that keeps most of its time."""
    owners = {code: ns for code, ns in dropped.lost.items() if code in stakes}
    if not owners:
        return
    owner = max(owners, key=lambda code: owners[code])
    finding = dropped.found.finding
    fact = f"{units.duration(owners[owner] / steps)} a step of this belong to {finding.code} as well: {finding.title}"
    stakes[owner] = replace(stakes[owner], evidence=[*stakes[owner].evidence, fact])


def explained(evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """The findings to report. A lone O01 without a certain saving is left out if one line takes most of the step: the
    answer's "held by" then says more."""
    alone = [finding.code for finding in findings] == ["O01"] and findings[0].at_stake_ns[0] <= 0
    return [] if alone and evidence.where.held_by_line else findings
