"""Normalize in one kernel.

`rms_norm`, `layer_norm` and what a compiler generates read the tensor once, keep a row on the chip, and write it once;
conversions and the residual's addition become part of it.

Predicted saving: the finding's own interval: with 45 % of the bandwidth at the low end, with all of it at the high
end, as far as the device is what the step waits for. Batch norms have no part in it: no row-wise norm stands for them.

Rows that do not fit the chip are read twice. Statistics are kept in float32; results are rounded differently.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.norms import batch_norm_share
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "fused-norm"
NUMERICS = "rounding"
HOW = "torch.nn.functional.rms_norm / layer_norm, or torch.compile"
CODE = """
y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
model = torch.compile(model)  # fuses a residual and the conversions into the norm
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """What the docstring says, of the finding's stake."""
    if finding.code != "M03":
        return None
    low, high = finding.at_stake_ns
    high *= 1 - batch_norm_share(evidence)
    if high <= 0:
        return None
    assumes = "one kernel for each norm"
    return prescription(NAME, finding, (low, high), HOW, assumes)
