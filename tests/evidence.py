"""From a trace file to what the conditions receive, and the few things that tests ask of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gobrrr.analysis.findings.claims import NO_CLAIM, ClaimedFinding, lengths
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions import catalogue
from gobrrr.conditions.overlap import settle
from gobrrr.doors.pipeline import evidence_of
from gobrrr.model.diagnosis import Finding, NotChecked, Prescription, Wall
from gobrrr.observe.trace import read_trace
from gobrrr.treatments import catalogue as treatments
from gobrrr.treatments.framework.prescribing import prescription, replayed
from gobrrr.treatments.framework.rank_plans import RankPlans
from gobrrr.treatments.framework.together import Combiner


def evidence_from(path: Path, on: str | None = None) -> Evidence:
    """The first device of the first rank."""
    return evidence_of(read_trace(str(path)).ranks[0], on=on)[0]


def certain(evidence: Evidence) -> Evidence:
    """The same with a wall that is known: no interval."""
    return replace(evidence, unprofiled=replace(evidence.unprofiled, wall=None, cost_ends=None))


def between(evidence: Evidence, low: float, high: float) -> Evidence:
    """The same with a wall between `low` and `high` times its estimate."""
    value = evidence.wall_ns
    wall = Wall(value=value, low=low * value, high=high * value, how="estimated")
    return replace(evidence, unprofiled=replace(evidence.unprofiled, wall=wall))


def watched(evidence: Evidence, **parts: Any) -> Evidence:
    """The same where `parts` of its profile were observed (`live`, `seen`)."""
    return replace(evidence, profile=replace(evidence.profile, **parts))


def check(code: str, evidence: Evidence) -> Finding | NotChecked | None:
    """What one condition says, before it is known what others claim."""
    result = claimed(code, evidence)
    if isinstance(result, ClaimedFinding):
        return None if result.hidden else result.finding
    return result


def claimed(code: str, evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """What one condition says, with what it claims."""
    return next(one for one in catalogue() if one.code == code).check(evidence)


def found(code: str, evidence: Evidence) -> Finding:
    """What one condition finds; fails where it finds nothing."""
    result = check(code, evidence)
    assert isinstance(result, Finding), result
    return result


def findings(evidence: Evidence) -> list[Finding]:
    """All findings with disjoint stakes, ranked by what is at stake."""
    results = [one.check(evidence) for one in catalogue()]
    found_ = [one for one in results if isinstance(one, ClaimedFinding) and not one.hidden]
    return settle(found_, lengths(evidence), evidence.steps.count, evidence.wall_ns)


def predict(name: str, evidence: Evidence, finding: Finding) -> Prescription | None:
    """What the replay alone says that one treatment saves for a finding, whose claim is the condition's own where it
    finds something here."""
    result = claimed(finding.code, evidence)
    found_ = (
        ClaimedFinding(finding, result.claim, result.gone)
        if isinstance(result, ClaimedFinding)
        else ClaimedFinding(finding, NO_CLAIM)
    )
    plan = next(one for one in treatments() if one.name == name).predict(evidence, found_)
    if plan is None:
        return None
    wall = Wall(value=evidence.wall_ns, low=None, high=None, how="estimated")
    if not evidence.replayable:
        return prescription(name, [(found_, plan)], evidence.wall_ns)
    alone = RankPlans(evidence, ((name, found_, plan),), np.empty(0, dtype=np.int64))
    return replayed(Combiner([alone], wall, spreads=()), name, [(found_, plan)], evidence.wall_ns)
