"""Put all parameters with the same settings into one group of the optimizer.

The foreach and the fused form go through the groups one by one, and do for each what they could do once for all of its
parameters. The update of each parameter stays the same.

Replayed: at the most one group's calls are left, at the least all of them: it is not known how many settings differ.

The order of the groups is part of a saved state: an optimizer's state from before does not fit any more.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import optimizer_of
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
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


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """All but one group's calls at the most."""
    finding = found.finding
    if finding.code != "O03" or NAME not in finding.treatments:
        return None
    made = optimizer_of(evidence)
    how = said(HOW, written_at(made.written) if made is not None else "")
    return of_claim(evidence, found, how, "high: all groups have the same settings; low: no two of them")
