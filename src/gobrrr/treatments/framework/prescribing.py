"""From findings to prescriptions: each treatment applied whole, replayed on the step's graph; most saving first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import MOST_WORK, Plan
from gobrrr.guarded import Parts
from gobrrr.model.diagnosis import Prescription, Wall
from gobrrr.treatments.framework.base import catalogue, part_of
from gobrrr.treatments.framework.seats import Looked, seats
from gobrrr.treatments.framework.together import Combiner, work_of

MOST_TOLD = 3
"""Of so many prescriptions it is said what bounds the step then: each is one more timeline to budget."""

TELLING = 0.02
"""A smaller saving leaves the step's bound as it is."""


def plans(evidence: Evidence, found: Sequence[Found], parts: Parts) -> list[tuple[str, Found, Plan]]:
    """Every treatment that a finding names and that applies, in the findings' order; those that fail go to `parts`."""
    known = {treatment.name: treatment for treatment in catalogue()}
    made = []
    for one in found:
        for name in one.finding.treatments:
            plan = parts.make(part_of(name, one), partial(known[name].predict, evidence, one), None)
            if plan is not None:
                made.append((name, one, plan))
    return made


def prescribe(
    ranks: Sequence[Looked], told: Sequence[Found], wall: Wall, step_ns: float, parts: Parts
) -> list[Prescription]:
    """What each treatment of the findings `told` saves of a step of `step_ns`, ranked; one that fails goes to `parts`.

    `ranks`: all ranks with all that was found, the leading one, whose findings are told, first; `wall`: the step's.
    0 <= low <= high <= `step_ns`.
    """
    lead = ranks[0].evidence
    by_name: dict[str, list[tuple[Found, Plan]]] = {}
    for name, found, plan in plans(lead, told, parts):
        by_name.setdefault(name, []).append((found, plan))
    replayable = all(rank.evidence.replayable for rank in ranks)
    combiner = None
    if by_name and replayable:
        combiner = parts.make("replay of the step", lambda: Combiner(seats(ranks, by_name, parts), wall), None)
    if combiner is None:
        given = [prescription(name, mine, step_ns) for name, mine in by_name.items()]
    else:
        each = [
            parts.make(name, partial(replayed, combiner, name, mine, step_ns), None) for name, mine in by_name.items()
        ]
        given = [one for one in each if one is not None]
    # a step that does more work gets no shorter: throughput comes last
    order = sorted(
        given, key=lambda one: (_more_work(by_name[one.treatment]), -_expected(one), -one.predicted_saving_ns[0])
    )
    return order if combiner is None else _bounded(order, combiner, lead, step_ns, parts)


def _more_work(mine: Sequence[tuple[Found, Plan]]) -> bool:
    return any(plan.work > 1.0 for _, plan in mine)


def prescription(name: str, mine: Sequence[tuple[Found, Plan]], step_ns: float) -> Prescription:
    """One treatment with its plans for all that it mends, of a step that can't be replayed: from nothing to all that
    is at stake."""
    most = sum(found.finding.at_stake_ns[1] for found, plan in mine if plan.effect is not None)
    return Prescription(
        treatment=name,
        finding=mine[0][0].finding.code,
        predicted_saving_ns=(0.0, min(most, step_ns)),
        how="\n".join(dict.fromkeys(plan.how for _, plan in mine)),
        assumes="; ".join(dict.fromkeys(part for _, plan in mine for part in plan.assumes.split("; ") if part)),
        mends=[found.finding.code for found, _ in mine],
    )


def replayed(combiner: Combiner, name: str, mine: Sequence[tuple[Found, Plan]], step_ns: float) -> Prescription:
    """One treatment with its plans for all that it mends, as the step's replay with them says; of a step that does more
    work the saving is for today's."""
    expected, low, high = (min(max(one, 0.0), step_ns) for one in combiner.saving([name]))
    alone = [expected if len(mine) == 1 else combiner.saving_for(name, found) for found, _ in mine]
    order = sorted(range(len(mine)), key=lambda at: -alone[at])
    return replace(
        prescription(name, [mine[at] for at in order], step_ns),
        predicted_saving_ns=(low, high),
        expected_ns=expected,
        mends_ns=[min(alone[at], step_ns) for at in order],
    )


def _bounded(
    ranked: list[Prescription], combiner: Combiner, lead: Evidence, step_ns: float, parts: Parts
) -> list[Prescription]:
    """The first few with what bounds the step then, in words; nothing where it then does other work or none is left."""
    if len(lead.priced.links.device) > MOST_WORK:
        return ranked
    telling = [one.treatment for one in ranked if (one.expected_ns or 0.0) >= max(TELLING * step_ns, 1e-9)][:MOST_TOLD]
    return [
        replace(one, then=parts.make(f"what follows {one.treatment}", partial(_then, combiner, one, step_ns), ""))
        if one.treatment in telling
        else one
        for one in ranked
    ]


def _then(combiner: Combiner, one: Prescription, step_ns: float) -> str:
    mine, left = combiner.seats[0].of([one.treatment]), step_ns - _expected(one)
    if work_of(mine) != 1.0 or left <= 0 or all(plan.effect is None for plan in mine):
        return ""
    found = combiner.combined([one.treatment]).what_if
    bound = found.regime if found.regime in ("mixed", "unknown") else f"{found.regime}-bound"
    return f"{bound}: {found.then}"


def _expected(one: Prescription) -> float:
    return one.expected_ns if one.expected_ns is not None else sum(one.predicted_saving_ns) / 2
