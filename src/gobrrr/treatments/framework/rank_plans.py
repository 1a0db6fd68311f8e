"""The plans of treatments for one rank, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.events import I8
from gobrrr.treatments.framework.asking import word_of
from gobrrr.treatments.framework.base import Planned

NARROWER = ("bf16-autocast", "bf16-cast")
"""Applied before treatments that merge calls, so that each original call is narrowed by itself."""

APPLIED_FIRST, APPLIED_LAST = ("remove-sync", "grouped-matmul"), ("cuda-graph", "larger-batch")
"""Applied first: treatments that remove waits, without which a graph can be captured. Applied last: treatments that
change the host time of everything that is left."""

MATRIX_TYPES = (("bf16-autocast", "bfloat16"), ("bf16-cast", "bfloat16"), ("tf32", "tf32"))
"""The type in which float32 contractions run with a treatment: on another machine that type's ceiling applies."""

ALTERNATIVES = (
    ("bf16-autocast", "tf32"), ("bf16-cast", "tf32"), ("bf16-cast", "bf16-autocast"),
    ("grouped-matmul", "batched-loop"),
)  # fmt: skip
"""(better, worse) treatments of the same work: only the better one counts."""

COVERED = (("compile", "channels-last"), ("compile", "pad-dimensions"))
"""(treatment, another one that it includes): for a finding that both apply to, only the first counts."""


@dataclass(frozen=True)
class RankPlans:
    """One rank: its evidence, its plans, and the row of `Diagnosis.ops` for each group of its calls."""

    evidence: Evidence
    plans: tuple[Planned, ...]
    row_of_group: I8

    def of(self, names: Sequence[str]) -> list[TreatmentPlan]:
        """The plans of some treatments in the order in which they are applied; of alternatives only the better
        one's."""
        left_out = {worse for better, worse in ALTERNATIVES if better in names and self.has(better)}
        chosen = [planned for planned in self.plans if planned[0] in names and planned[0] not in left_out]
        chosen = [planned for planned in chosen if not self._covered(planned, names)]
        kept, done = [], set()
        for name, _, plan in sorted(chosen, key=_turn):
            if name not in done:
                kept.append(plan)
            if plan.once:
                done.add(name)
        return kept

    def _covered(self, planned: Planned, names: Sequence[str]) -> bool:
        """Whether another treatment of `names` includes this one for its finding."""
        name, found, _ = planned
        if found is None:
            return False
        by = {better for better, worse in COVERED if worse == name and better in names}
        return any(name in by and other is not None and other.finding.code == found.finding.code
                   for name, other, _ in self.plans)  # fmt: skip

    def for_finding(self, code: str) -> RankPlans:
        """The rank with only the plans for one finding."""
        plans = (plan for plan in self.plans if plan[1] is not None and plan[1].finding.code == code)
        return replace(self, plans=tuple(plans))

    def at(self, times: float) -> RankPlans:
        """The rank when its step took `times` as long."""
        return replace(self, plans=tuple((name, found, plan.at(times)) for name, found, plan in self.plans))

    def has(self, name: str) -> bool:
        """Whether a treatment has a plan for this rank."""
        return any(name == own for own, _, _ in self.plans)

    def matrix(self, names: Sequence[str]) -> str | None:
        """The type in which float32 contractions run with some treatments; None: their own."""
        applied = {name for name, _, _ in self.plans if name in names}
        return next((dtype for name, dtype in MATRIX_TYPES if name in applied), None)


def _turn(planned: Planned) -> tuple[bool, bool, bool, bool]:
    name, _, plan = planned
    return word_of(name) in APPLIED_LAST, name not in APPLIED_FIRST, name not in NARROWER, plan.last
