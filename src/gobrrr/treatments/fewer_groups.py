"""Put all parameters with the same settings into one group of the optimizer.

The foreach and the fused form go through the groups one by one, and repeat for each group what one call could do for
all parameters. The update of each parameter stays the same.

Predicted: at the high end the calls of one group are left, at the low end all of them, because it is not known how many
groups differ in their settings.

The order of the groups is part of a saved state: a state that was saved before no longer fits.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import optimizer_of
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import said, written_at

NAME = "fewer-groups"
NUMERICS = "none"
CODE = """
decayed, others = [], []  # one list for each setting
for parameter in model.parameters():
    (decayed if parameter.ndim > 1 else others).append(parameter)
groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
# where the optimizer is made, beside its other arguments; AdamW stands for yours
optimizer = torch.optim.AdamW(..., params=groups)
"""
HOW = "one group for all parameters with the same learning rate, weight decay and other settings"


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """At the high end only the calls of one group are left."""
    finding = found.finding
    if finding.code != "O03" or NAME not in finding.treatments:
        return None
    optimizer = optimizer_of(evidence)
    how = said(HOW, written_at(optimizer.written) if optimizer is not None else "")
    return of_claim(evidence, found, how, "high: all groups have the same settings; low: no two of them")
