"""Normalize in one kernel.

`rms_norm`, `layer_norm` and what a compiler generates read the tensor once, keep a row on the chip, and write it once;
conversions and the residual's addition become part of it.

Replayed: what the finding claims, with 45 % of the bandwidth at the least and all of it at the most, and one launch
for a norm that is written out. Batch norms have no part in it: no row-wise norm stands for them.

Rows that do not fit the chip are read twice. Statistics are kept in float32; results are rounded differently.
"""

from __future__ import annotations

from gobrrr.analysis.detect.norms import batch_norm_share, written_norms
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.compiled import is_compiled
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.wording import changed_model, line, where

NAME = "fused-norm"
NUMERICS = "rounding"
NORMS = {
    "rms": "y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)",
    "layer": "y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)",
}
CENTRING = ("aten::sub", "aten::var", "aten::var_mean")
"""Calls by which a norm subtracts the mean."""
CODE = """
y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
model = torch.compile(model)  # fuses a residual and the conversions into the norm
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's claim."""
    share = 1 - batch_norm_share(evidence)
    if found.finding.code != "M03" or share <= 0:
        return None
    how = _how(evidence, found.finding)
    if how is None:
        return None
    return of_claim(evidence, found, how, "one kernel for each norm", least=share, most=share)


def _how(evidence: Evidence, finding: Finding) -> str | None:
    """The function of the heaviest norm that is written out; what has no such kernel is left to the compiler, and None
    where that has been there."""
    written = max(written_norms(evidence), key=lambda written_norm: written_norm.bytes, default=None)
    calls = written.calls if written is not None else ()
    kind = "layer" if {evidence.group_of(call).call.name for call in calls} & set(CENTRING) else "rms"
    if written is None or (kind == "rms" and not evidence.device.fused_rms_norm):  # it is taken apart again
        return None if is_compiled(evidence) else changed_model(evidence, "torch.compile({})")
    return line(NORMS[kind], where(finding))
