"""From findings to prescriptions: each treatment is replayed on the step's graph; the largest saving comes first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import MOST_REPLAYED_WORK, TreatmentPlan
from gobrrr.guarded import GuardedParts
from gobrrr.model.diagnosis import Prescription, Wall
from gobrrr.treatments.framework.base import catalogue, part_of
from gobrrr.treatments.framework.seats import RankFindings, seats
from gobrrr.treatments.framework.together import Combiner, work_of

MOST_BOUNDED = 3
"""For so many prescriptions gobrrr also says what bounds the step afterwards: each costs one more budget. Chosen."""

LEAST_BOUNDING_SHARE = 0.02
"""A smaller share of the step does not change what bounds it. Chosen, not measured."""


def plans(
    evidence: Evidence, found: Sequence[ClaimedFinding], parts: GuardedParts
) -> list[tuple[str, ClaimedFinding, TreatmentPlan]]:
    """The plans of every treatment that a finding names, in the order of the findings; failures go to `parts`."""
    treatments = {treatment.name: treatment for treatment in catalogue()}
    planned = []
    for finding in found:
        for name in finding.finding.treatments:
            plan = parts.make(part_of(name, finding), partial(treatments[name].predict, evidence, finding), None)
            if plan is not None:
                planned.append((name, finding, plan))
    return planned


def prescribe(
    ranks: Sequence[RankFindings], told: Sequence[ClaimedFinding], wall: Wall, step_ns: float, parts: GuardedParts
) -> list[Prescription]:
    """What each treatment of the reported findings `told` saves of a step of `step_ns`, ranked; failures go to `parts`.

    `ranks`: all ranks with all their findings; the first is the one whose findings are reported. `wall`: the step's
    time with its uncertainty. 0 <= low <= high <= `step_ns`.
    """
    lead = ranks[0].evidence
    by_name: dict[str, list[tuple[ClaimedFinding, TreatmentPlan]]] = {}
    for name, found, plan in plans(lead, told, parts):
        by_name.setdefault(name, []).append((found, plan))
    replayable = all(rank.evidence.replayable for rank in ranks)
    combiner = None
    if by_name and replayable:
        combiner = parts.make("replay of the step", lambda: Combiner(seats(ranks, by_name, parts), wall), None)
    if combiner is None:
        given = [prescription(name, planned, step_ns) for name, planned in by_name.items()]
    else:
        each = [
            parts.make(name, partial(replayed, combiner, name, planned, step_ns), None)
            for name, planned in by_name.items()
        ]
        given = [item for item in each if item is not None]
    # treatments that raise throughput come last: the step itself gets no shorter
    order = sorted(
        given, key=lambda item: (_more_work(by_name[item.treatment]), -_expected(item), -item.predicted_saving_ns[0])
    )
    return order if combiner is None else _bounded(order, combiner, lead, step_ns, parts)


def _more_work(planned: Sequence[tuple[ClaimedFinding, TreatmentPlan]]) -> bool:
    return any(plan.work > 1.0 for _, plan in planned)


def prescription(name: str, planned: Sequence[tuple[ClaimedFinding, TreatmentPlan]], step_ns: float) -> Prescription:
    """A treatment with its plans for all findings that it mends, where the step can't be replayed: it saves from
    nothing to all that is at stake."""
    most = sum(found.finding.at_stake_ns[1] for found, plan in planned if plan.effect is not None)
    return Prescription(
        treatment=name,
        finding=planned[0][0].finding.code,
        predicted_saving_ns=(0.0, min(most, step_ns)),
        how="\n".join(dict.fromkeys(plan.how for _, plan in planned)),
        assumes="; ".join(dict.fromkeys(part for _, plan in planned for part in plan.assumes.split("; ") if part)),
        mends=[found.finding.code for found, _ in planned],
    )


def replayed(
    combiner: Combiner, name: str, planned: Sequence[tuple[ClaimedFinding, TreatmentPlan]], step_ns: float
) -> Prescription:
    """A treatment with its plans for all findings that it mends, and the saving that the replay predicts. For a step
    that does more work the saving is for today's amount of work."""
    expected, low, high = (min(max(saving, 0.0), step_ns) for saving in combiner.saving([name]))
    alone = [expected if len(planned) == 1 else combiner.saving_for(name, found) for found, _ in planned]
    order = sorted(range(len(planned)), key=lambda at: -alone[at])
    return replace(
        prescription(name, [planned[at] for at in order], step_ns),
        predicted_saving_ns=(low, high),
        expected_ns=expected,
        mends_ns=[min(alone[at], step_ns) for at in order],
    )


def _bounded(
    ranked: list[Prescription], combiner: Combiner, lead: Evidence, step_ns: float, parts: GuardedParts
) -> list[Prescription]:
    """Adds to the first few what bounds the step afterwards; not where the step does other work then, or none is
    left."""
    if len(lead.priced.links.device) > MOST_REPLAYED_WORK:
        return ranked
    telling = [
        item.treatment for item in ranked if (item.expected_ns or 0.0) >= max(LEAST_BOUNDING_SHARE * step_ns, 1e-9)
    ][:MOST_BOUNDED]
    return [
        replace(item, then=parts.make(f"what follows {item.treatment}", partial(_then, combiner, item, step_ns), ""))
        if item.treatment in telling
        else item
        for item in ranked
    ]


def _then(combiner: Combiner, item: Prescription, step_ns: float) -> str:
    applied, left = combiner.seats[0].of([item.treatment]), step_ns - _expected(item)
    if work_of(applied) != 1.0 or left <= 0 or all(plan.effect is None for plan in applied):
        return ""
    found = combiner.combined([item.treatment]).what_if
    bound = found.regime if found.regime in ("mixed", "unknown") else f"{found.regime}-bound"
    return f"{bound}: {found.then}"


def _expected(item: Prescription) -> float:
    return item.expected_ns if item.expected_ns is not None else sum(item.predicted_saving_ns) / 2
