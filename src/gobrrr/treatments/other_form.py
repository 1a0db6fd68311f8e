"""Write the operation that holds the step in a form that does less work.

The form depends on the operation: `torch.where` for the positions of a mask, `topk` for a sort, `solve` for an inverse,
`F.embedding` for a one-hot product.

Predicted: at the high end the operation takes its floor (no time where that is not known), and the host takes no time
to issue its pieces; at the low end both take as long as now. For an operation without a known slow form nothing is
promised.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gobrrr.analysis.detect.slow_forms import claim_of, heavy
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import all_of, less_host, of_claim, spans_of
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import place, said

NAME = "other-form"
NUMERICS = "rounding"
CODE = """
x = torch.where(mask, x, 0)  # not x[mask], which lists the mask's positions first
"""
GENERAL = "another form of the operation that holds the step"
"""Advice where no better form is known."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """From nothing to what the finding claims for operations in known slow forms."""
    finding = found.finding
    if finding.code != "C07":
        return None
    named = {(spot.op, spot.source) for spot in finding.where}
    slow = [
        operation
        for operation in heavy(evidence)
        if operation.form is not None and (operation.name, operation.source) in named
    ]
    lines = dict.fromkeys(
        said(operation.form.better, place(operation.source)) for operation in slow if operation.form is not None
    )
    part = ClaimedFinding(finding, claim_of(evidence, slow))
    plan = of_claim(evidence, part, "\n".join(lines) or said(GENERAL), "low: the other form takes as long", least=0.0)
    pieces = [operation.rows for operation in slow if operation.idle and evidence.device.asynchronous]
    if plan.effect is None or not pieces:
        return plan
    host = less_host(*spans_of(evidence, np.concatenate(pieces)), 1.0, 0.0)
    return replace(plan, effect=all_of(plan.effect, host))
