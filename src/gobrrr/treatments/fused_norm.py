"""Normalize in one kernel.

`rms_norm`, `layer_norm` and the kernels that a compiler generates read the tensor once, keep a row on the chip, and
write it once; conversions and the residual addition become part of the kernel.

Predicted: what the finding claims, at 45 % of the bandwidth at the low end and all of it at the high end, with one
launch for each norm that is written out. Batch norms are left out: no row-wise norm replaces them.

Rows that do not fit on the chip are read twice. Statistics are kept in float32; results are rounded differently.
"""

from __future__ import annotations

from gobrrr.analysis.detect.norms import batch_norm_share, written_norms
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.compiled import is_compiled
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.wording import changed_model, line, where

NAME = "fused-norm"
NUMERICS = "rounding"
NORMS = {
    "rms": "y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)",
    "layer": "y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)",
}
"""The fused function for each kind of norm."""
CENTRING = ("aten::sub", "aten::var", "aten::var_mean")
"""Calls that show that a norm subtracts the mean."""
CODE = """
y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
model = torch.compile(model)  # fuses a residual and the conversions into the norm
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's claim without batch norms."""
    share = 1 - batch_norm_share(evidence)
    if found.finding.code != "M03" or share <= 0:
        return None
    how = _how(evidence, found.finding)
    if how is None:
        return None
    return of_claim(evidence, found, how, "one kernel for each norm", least=share, most=share)


def _how(evidence: Evidence, finding: Finding) -> str | None:
    """The fused function for the written-out norm with the most bytes. Where there is no fused kernel, torch.compile;
    None where the step is compiled already."""
    written = max(written_norms(evidence), key=lambda written_norm: written_norm.bytes, default=None)
    calls = written.calls if written is not None else ()
    kind = "layer" if {evidence.group_of(call).call.name for call in calls} & set(CENTRING) else "rms"
    if written is None or (
        kind == "rms" and not evidence.device.fused_rms_norm
    ):  # the device runs rms_norm as several kernels
        return None if is_compiled(evidence) else changed_model(evidence, "torch.compile({})")
    return line(NORMS[kind], where(finding))
