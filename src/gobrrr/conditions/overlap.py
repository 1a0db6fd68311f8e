"""No nanosecond at stake twice: where findings claim the same part of the timeline, the more specific one keeps it.

The specific finding names a cause that the general one only shows the effect of: a loop over timesteps (O04) makes a
step launch-bound (O01), a norm written by hand (M03) is a chain of pointwise calls (M01). The general one keeps the
rest and says how much of it is the other's; where too little is left it is dropped, and the one that keeps it says so.

Threads that wait for a processor (O09) slow down whatever runs, what is wrong in itself too, so that O09 stands beside
the others: it takes nothing from them and loses nothing to them.

Because the units' lengths sum to the window (`claims`) and no finding has more at stake than it keeps, all other
findings together never have more at stake than the step; what a claim has beyond the analysed steps comes on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from gobrrr import units
from gobrrr.analysis.findings.claims import F8, Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import LEAST_SHARE
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
"""Who keeps what two claim; codes that are not listed come last, in order of their code."""

BESIDE = "O09"
"""The code whose claim is shared with nobody's."""


@dataclass(frozen=True)
class _Kept:
    """A finding with what it got: nanoseconds of each unit, by position in the window's units."""

    found: Found
    ns: F8
    low: F8
    lost: dict[str, float]  # nanoseconds that each other code keeps

    @property
    def shares(self) -> tuple[float, float]:
        """What it got of what the low and of what the high end rest on."""
        claim = self.found.claim
        return _share(self.low, claim.low, claim.beyond_low), _share(self.ns, claim.ns, claim.beyond)


def settle(findings: Sequence[Found], lengths: F8, steps: int, wall_ns: float) -> list[Finding]:
    """The findings with disjoint stakes, most at stake first; those about the measurement last.

    `lengths`: nanoseconds of each unit of the window; `steps`: how many steps it holds; `wall_ns`: one step. The sum of
    all high ends is at most the window's length for one step.
    """
    kept = _share_out(sorted(findings, key=_rank), lengths)
    stakes = {one.found.finding.code: _restaked(one, steps, wall_ns) for one in kept}
    gone = [one for one in kept if one.lost and stakes[one.found.finding.code].at_stake_ns[1] < LEAST_SHARE * wall_ns]
    for one in gone:
        del stakes[one.found.finding.code]
    for one in gone:
        _mention(one, stakes, steps)
    return sorted(stakes.values(), key=lambda stake: (-stake.at_stake_ns[1], -stake.at_stake_ns[0], stake.code))


def _rank(found: Found) -> tuple[int, str]:
    code = found.finding.code
    return SPECIFIC_FIRST.index(code) if code in SPECIFIC_FIRST else len(SPECIFIC_FIRST), code


def _share_out(findings: Sequence[Found], lengths: F8) -> list[_Kept]:
    """Each finding takes of a unit what its claim reaches beyond the claims before it.

    Two savings on one call are the same nanoseconds, as far as the smaller one goes.
    """
    reached = np.zeros_like(lengths)
    done: list[_Kept] = []
    for found in findings:
        claim = found.claim
        wanted = np.minimum(claim.ns, lengths[claim.unit])
        mine, missing = np.zeros_like(lengths), np.zeros_like(lengths)
        if found.finding.code == BESIDE:
            mine[claim.unit] = wanted
            done.append(_Kept(found, mine, np.minimum(claim.low, wanted), {}))
            continue
        mine[claim.unit] = np.maximum(wanted - reached[claim.unit], 0.0)
        missing[claim.unit] = wanted - mine[claim.unit]
        low = np.maximum(np.minimum(claim.low, wanted) - reached[claim.unit], 0.0)
        reached += mine
        done.append(_Kept(found, mine, low, _lost(missing, done)))
    return done


def _lost(missing: F8, before: Sequence[_Kept]) -> dict[str, float]:
    found = {kept.found.finding.code: float(np.minimum(missing, kept.ns).sum()) for kept in before}
    return {code: ns for code, ns in found.items() if ns > 0 and code != BESIDE}


def _restaked(kept: _Kept, steps: int, wall_ns: float) -> Finding:
    """The finding with the stake that it keeps, no more than a step of `wall_ns`, and whose the rest is."""
    finding, got = kept.found.finding, (float(kept.ns.sum()) + kept.found.claim.beyond) / steps
    low, high = (min(ns * share, got, wall_ns) for ns, share in zip(finding.at_stake_ns, kept.shares, strict=True))
    facts = [
        f"of which {units.duration(ns / steps)} a step are {code}'s and not counted here"
        for code, ns in kept.lost.items()
        if ns / steps > LEAST_NAMED * finding.at_stake_ns[1]
    ]
    return replace(finding, at_stake_ns=(min(low, high), high), evidence=[*finding.evidence, *facts])


def _share(got: F8, claimed: F8, beyond: float) -> float:
    total = float(claimed.sum()) + beyond
    return min((float(got.sum()) + beyond) / total, 1.0) if total > 0 else 1.0


LEAST_NAMED = 0.01
"""A smaller part of the stake that another finding keeps changes no figure that is shown."""


def _mention(gone: _Kept, stakes: dict[str, Finding], steps: int) -> None:
    """The finding that keeps most of a dropped one's time names it."""
    owners = {code: ns for code, ns in gone.lost.items() if code in stakes}
    if not owners:
        return
    owner = max(owners, key=lambda code: owners[code])
    named = gone.found.finding
    fact = f"{units.duration(owners[owner] / steps)} of this a step are {named.code}'s as well: {named.title}"
    stakes[owner] = replace(stakes[owner], evidence=[*stakes[owner].evidence, fact])


def explained(evidence: Evidence, told: list[Finding]) -> list[Finding]:
    """What is told; nothing, where that is only that much is launched, with no saving that is certain, and one line
    holds the step: then "held by" is the answer."""
    alone = [finding.code for finding in told] == ["O01"] and told[0].at_stake_ns[0] <= 0
    return [] if alone and evidence.where.held_by_line else told
