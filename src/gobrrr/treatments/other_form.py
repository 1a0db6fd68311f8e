"""Write the operation that holds the step in a form that does less.

Which form, the finding's operation decides: `torch.where` for positions of a mask, `topk` for a sort, `solve` for an
inverse, `F.embedding` for a one-hot product.

Replayed: at the most the operation takes no more than its floor (nothing, where that is not known), and the host no
time for what it issues piece by piece; at the least as long as now. An operation without a known slow form is promised
nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gobrrr.analysis.detect.slow_forms import claim_of, heavy
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import all_of, less_host, of_claim, spans_of
from gobrrr.analysis.savings.gains import Plan
from gobrrr.treatments.framework.wording import place, said

NAME = "other-form"
NUMERICS = "rounding"
CODE = """
x = torch.where(mask, x, 0)  # not x[mask], which lists the mask's positions first
"""
GENERAL = "another form of the operation that holds the step"


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of what the finding claims for operations of known slow forms."""
    finding = found.finding
    if finding.code != "C07":
        return None
    named = {(one.op, one.source) for one in finding.where}
    known = [one for one in heavy(evidence) if one.form is not None and (one.name, one.source) in named]
    told = dict.fromkeys(said(one.form.better, place(one.source)) for one in known if one.form is not None)
    mine = Found(finding, claim_of(evidence, known))
    plan = of_claim(evidence, mine, "\n".join(told) or said(GENERAL), "low: the other form takes as long", least=0.0)
    pieces = [one.rows for one in known if one.idle and evidence.device.asynchronous]
    if plan.effect is None or not pieces:
        return plan
    host = less_host(*spans_of(evidence, np.concatenate(pieces)), 1.0, 0.0)
    return replace(plan, effect=all_of(plan.effect, host))
