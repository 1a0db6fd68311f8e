"""From a trace file to what the conditions receive, and the few things that tests ask of it."""

from __future__ import annotations

from pathlib import Path

from gobrrr.analysis.evidence import Evidence
from gobrrr.conditions import catalogue
from gobrrr.model.diagnosis import Finding, NotChecked, Prescription
from gobrrr.observe.trace import read_trace
from gobrrr.pipeline import evidence_of
from gobrrr.treatments import catalogue as treatments


def evidence_from(path: Path, on: str | None = None) -> Evidence:
    """The first device of the first rank."""
    return evidence_of(read_trace(str(path)).ranks[0], on=on)[0]


def check(code: str, evidence: Evidence) -> Finding | NotChecked | None:
    """What one condition says."""
    return next(one for one in catalogue() if one.code == code).check(evidence)


def found(code: str, evidence: Evidence) -> Finding:
    """What one condition finds; fails where it finds nothing."""
    result = check(code, evidence)
    assert isinstance(result, Finding), result
    return result


def findings(evidence: Evidence) -> list[Finding]:
    """All findings, ranked by what is at stake."""
    results = [one.check(evidence) for one in catalogue()]
    ranked = [one for one in results if isinstance(one, Finding)]
    return sorted(ranked, key=lambda one: (-one.at_stake_ns[1], -one.at_stake_ns[0]))


def predict(name: str, evidence: Evidence, finding: Finding) -> Prescription | None:
    """What one treatment promises for a finding."""
    return next(one for one in treatments() if one.name == name).predict(evidence, finding)
