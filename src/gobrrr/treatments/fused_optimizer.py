"""Let the optimizer update all parameters in a few launches.

The fused form does an update of many parameters in one kernel, the foreach form does one of its operations for many
parameters in one kernel. The numbers differ by rounding at most.

Predicted saving: the finding's own interval. The low end is half of the idle time in front of the updates (foreach
still goes through the parameters on the host), the high end all of it (fused), and on a CPU what the loops take
beyond one pass over the same tensors; both as far as the interval of the step's estimated time goes.

On a GPU very large parameters gain little: their kernels are bound by memory in each form.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.path import path_of
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "fused-optimizer"
NUMERICS = "rounding"
HOW = "torch.optim.AdamW(..., fused=True)"
CODE = """
optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)  # or foreach=True
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """What the docstring says, of the finding's stake."""
    if finding.code != "O03":
        return None
    low, high = finding.at_stake_ns
    path = path_of(evidence)
    high = min(path.at_most(high), high + path.spread.up)
    assumes = "the optimizer has a fused or a foreach form"
    return prescription(NAME, finding, (low, high), HOW, assumes)
