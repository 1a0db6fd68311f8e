"""Let float32 matmuls run on the tensor cores as TF32.

TF32 keeps float32's range and storage and rounds the operands of a matmul to 10 bits of mantissa: about 3e-4
relative error a matmul. Nothing else in the program changes.

Predicted saving: each float32 contraction at the TF32 peak with the same share of the peak as now at the low end;
at the high end half of the way from there to the bandwidth's floor. Both only as far as the device is what the step
waits for.

It gives nothing for float64, for memory-bound matmuls, and where the matmuls are a small share of the step. Use
either the old or the new precision switches of PyTorch, not both.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.path import path_of
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "tf32"
NUMERICS = "rounding"
CODE = """
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = True  # convolutions; the default
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """The low end of the finding, which is TF32, up to what a better share of the peak would add."""
    if finding.code not in ("C01", "C03") or evidence.on_cpu:
        return None
    low, high = finding.at_stake_ns
    upper = min(low + (high - low) / 2, max(path_of(evidence).wall - path_of(evidence).host, 0.0))
    how = 'torch.set_float32_matmul_precision("high")'
    return prescription(
        NAME, finding, (low, upper), how, "TF32 kernels reach the share of their peak that float32 has now"
    )
