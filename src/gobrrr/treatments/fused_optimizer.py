"""Let the optimizer update all parameters in a few launches.

The fused form does an update of many parameters in one kernel, the foreach form does one of its operations for many
parameters in one kernel. The numbers differ by rounding at most.

Replayed: all updates of a step are one launch, in as much time on the device as now at the least, in that of one pass
over the parameters at the most. On a CPU what the finding claims.

On a GPU very large parameters gain little: their kernels are bound by memory in each form.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.analysis.optimizers import updates
from gobrrr.analysis.regions import as_one_launch

NAME = "fused-optimizer"
NUMERICS = "rounding"
ONE_PASS = 1 / 3
"""Of the bytes of an Adam written out (some 22 reads and writes of a parameter's size: mul, lerp, mul, addcmul, sqrt,
div, add, addcdiv) one pass moves 7: parameter, gradient and two moments in, three out."""
HOW = "torch.optim.AdamW(..., fused=True)"
CODE = """
optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)  # or foreach=True
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """One launch for all updates of a step, in one pass over the parameters."""
    if found.finding.code != "O03":
        return None
    assumes = "the optimizer has a fused or a foreach form"
    if evidence.on_cpu:
        return of_claim(evidence, found, HOW, assumes)
    return Plan(HOW, assumes, as_one_launch(evidence, updates(evidence).work, ONE_PASS))
