"""`predict` for treatments that change the user's source and are never tried: the code to write, for the whole
claim."""

from __future__ import annotations

from collections.abc import Callable

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.base import Predict
from gobrrr.treatments.framework.wording import said, where

How = str | Callable[[Evidence, Finding], str]
"""Text, which becomes a comment after the finding's line, or a function that makes the code to write."""


def advice(code: str, how: How, assumes: str, *, least: float = 1.0) -> Predict:
    """For findings of `code`: the treatment saves what the finding claims, at the low end the share `least` of it."""

    def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
        if found.finding.code != code:
            return None
        code_to_write = said(how, where(found.finding)) if isinstance(how, str) else how(evidence, found.finding)
        return of_claim(evidence, found, code_to_write, assumes, least=least)

    return predict


def another_trace(code: str, how: str) -> Predict:
    """For findings of `code` about the trace itself: the treatment is a better trace, which saves no time."""

    def predict(_: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
        return (
            TreatmentPlan(how, "it makes the trace say more, not the step faster", None)
            if found.finding.code == code
            else None
        )

    return predict
