"""The ranks of a step with the plans of some treatments, on which combinations of them are replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.micro_batches import micro_batches
from gobrrr.analysis.savings.gains import Effect
from gobrrr.analysis.savings.reductions import overlapping, reduced_once
from gobrrr.guarded import GuardedParts
from gobrrr.model.events import I8
from gobrrr.treatments.framework.asking import asked
from gobrrr.treatments.framework.rank_plans import RankPlans

COLLECTIVE: dict[str, Callable[[Evidence], Effect]] = {
    "comm-overlap": overlapping,
    "no-sync": lambda evidence: reduced_once(evidence, micro_batches(evidence)),
}
"""Treatments that change all ranks alike. The rank that the others wait for does not wait itself, and has no
finding."""


@dataclass(frozen=True)
class RankFindings:
    """One rank with its findings, and the row of `Diagnosis.ops` for each group of its calls."""

    evidence: Evidence
    found: Sequence[ClaimedFinding]
    row_of_group: I8


def seats(ranks: Iterable[RankFindings], names: Iterable[str], parts: GuardedParts) -> list[RankPlans]:
    """Each rank with the plans of the treatments `names` for all findings that they apply to; failures go to `parts`.

    Raises UsageError where there is no such treatment, size or part.
    """
    wanted = tuple(dict.fromkeys(names))
    seated = [
        RankPlans(
            rank.evidence,
            tuple(plan for name in wanted for plan in asked(name, rank.evidence, rank.found, parts)),
            rank.row_of_group,
        )
        for rank in ranks
    ]
    return _on_all(seated)


def _on_all(seats: list[RankPlans]) -> list[RankPlans]:
    """The same seats; where one rank has a plan of a COLLECTIVE treatment, all ranks have it."""
    for name, effect in COLLECTIVE.items():
        having = [planned for seat in seats for planned in seat.plans if planned[0] == name]
        if not having:
            continue
        _, found, plan = having[0]
        seats = [
            seat
            if seat.has(name)
            else replace(seat, plans=(*seat.plans, (name, found, replace(plan, effect=effect(seat.evidence)))))
            for seat in seats
        ]
    return seats
