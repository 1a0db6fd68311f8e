"""From findings to prescriptions: each treatment's plan, replayed on the step's graph; most expected saving first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from gobrrr.analysis.claims import Found
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import EXPECTED, MOST_WORK, Plan, Stopwatch
from gobrrr.analysis.outcome import outcome
from gobrrr.guarded import Parts
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import catalogue

MOST_TOLD = 3
"""Of so many prescriptions it is said what bounds the step then: each is one more timeline to budget."""

TELLING = 0.02
"""A smaller saving leaves the step's bound as it is."""

Planned = tuple[str, Found | None, Plan]
"""A treatment's name, the finding that it is for (None: it was asked for without one), and what it changes."""


def plans(evidence: Evidence, found: Sequence[Found], parts: Parts) -> list[tuple[str, Found, Plan]]:
    """Every treatment that a finding names and that applies, in the findings' order; those that fail go to `parts`."""
    known = {one.name: one for one in catalogue()}
    made = []
    for one in found:
        for name in one.finding.treatments:
            plan = parts.make(part_of(name, one), partial(known[name].predict, evidence, one), None)
            if plan is not None:
                made.append((name, one, plan))
    return made


def part_of(name: str, found: Found) -> str:
    """What a treatment of a finding is called where it fails."""
    return f"{name} for {found.finding.code}"


def prescribe(evidence: Evidence, found: Sequence[Found], step_ns: float, parts: Parts) -> list[Prescription]:
    """What each finding's treatments alone would save of a step of `step_ns`; 0 <= low <= high <= `step_ns`.

    One that fails is left out, and goes to `parts`.
    """
    planned = plans(evidence, found, parts)
    replayed = bool(planned) and evidence.replayable
    watch = parts.make("replay of the step", partial(Stopwatch, evidence), None) if replayed else None
    each = [(one, parts.make(part_of(*one[:2]), partial(prescription, watch, *one, step_ns), None)) for one in planned]
    made = [one for one, own in each if own is not None]
    given = [own for _, own in each if own is not None]
    # a step that does more work gets no shorter: throughput comes last
    order = sorted(
        range(len(given)),
        key=lambda at: (made[at][2].work > 1.0, -_expected(given[at]), -given[at].predicted_saving_ns[0], at),
    )
    told = [at for at in order if given[at].expected_ns and _expected(given[at]) >= TELLING * step_ns][:MOST_TOLD]
    for at in told if len(evidence.priced.links.device) <= MOST_WORK else ():
        left = step_ns - _expected(given[at])
        then = parts.make(f"what follows {part_of(*made[at][:2])}", partial(_then, evidence, made[at][2], left), "")
        given[at] = replace(given[at], then=then)
    return [given[at] for at in order]


def _then(evidence: Evidence, plan: Plan, step_ns: float) -> str:
    """What bounds the step with a plan carried out, in words; nothing where that does other work, or none is left."""
    if plan.effect is None or plan.work != 1.0 or step_ns <= 0:
        return ""
    found = outcome(evidence, plan.effect(EXPECTED)(evidence.graph), evidence.priced, step_ns)
    bound = found.regime if found.regime in ("mixed", "unknown") else f"{found.regime}-bound"
    return f"{bound}: {found.then}"


def _expected(one: Prescription) -> float:
    return one.expected_ns if one.expected_ns is not None else sum(one.predicted_saving_ns) / 2


def prescription(watch: Stopwatch | None, name: str, found: Found, plan: Plan, step_ns: float) -> Prescription:
    """What one plan saves of a step of `step_ns`; `watch` None: the step can't be replayed."""
    if watch is None:
        saving, expected = _at_stake(found.finding, plan), None
    else:
        gain = watch.gain(plan)
        expected = min(max(gain.value, 0.0), step_ns)
        saving = min(max(gain.low, 0.0), expected), min(max(gain.high, expected), step_ns)
    return Prescription(
        treatment=name,
        finding=found.finding.code,
        predicted_saving_ns=saving,
        how=plan.how,
        assumes=plan.assumes,
        expected_ns=expected,
    )


def _at_stake(finding: Finding, plan: Plan) -> tuple[float, float]:
    """Where the step can't be replayed: from nothing to all that is at stake."""
    return (0.0, 0.0) if plan.effect is None else (0.0, finding.at_stake_ns[1])
