"""Run inference without autograd.

In `torch.inference_mode()` no operation makes a node of the autograd graph, and no result is kept for a backward pass.
It also skips the version counters of in-place changes, which `torch.no_grad()` keeps. A tensor made in it can't be used
where gradients are recorded later: use `torch.no_grad()` for that. The numbers stay the same.

Predicted: what the finding claims, from its low to its high end: the host's time for the nodes, and on a CPU the time
for writing results to new memory.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import said, where

NAME = "inference-mode"
NUMERICS = "none"
CODE = """
with torch.inference_mode():
    y = model(x)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake."""
    if found.finding.code != "R05":
        return None
    how = said("within torch.inference_mode()", where(found.finding))
    return of_claim(evidence, found, how, "no backward pass comes later")
