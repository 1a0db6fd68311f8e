"""Normalize in one kernel.

`rms_norm`, `layer_norm` and what a compiler generates read the tensor once, keep a row on the chip, and write it once;
conversions and the residual's addition become part of it.

Replayed: what the finding claims, with 45 % of the bandwidth at the least and all of it at the most, and one launch
for a norm that is written out. Batch norms have no part in it: no row-wise norm stands for them.

Rows that do not fit the chip are read twice. Statistics are kept in float32; results are rounded differently.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.analysis.norms import batch_norm_share
from gobrrr.treatments.wording import line, where

NAME = "fused-norm"
NUMERICS = "rounding"
HOW = "y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)"
CODE = """
y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
model = torch.compile(model)  # fuses a residual and the conversions into the norm
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's claim."""
    share = 1 - batch_norm_share(evidence)
    if found.finding.code != "M03" or share <= 0:
        return None
    how = line(HOW, where(found.finding), "layer_norm, where the mean is subtracted")
    return of_claim(evidence, found, how, "one kernel for each norm", least=share, most=share)
