"""Let float32 matmuls run on the tensor cores as TF32.

TF32 keeps float32's range and storage and rounds the operands of a matmul to 10 bits of mantissa: about 3e-4
relative error a matmul. Nothing else in the program changes.

Replayed: each float32 contraction at the TF32 peak with the same share of the peak as now at the least; at the most
half of the way from there to the finding's high end.

It gives nothing for float64, for memory-bound matmuls, and where the matmuls are a small share of the step. Use
either the old or the new precision switches of PyTorch, not both.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import all_of, of_calls
from gobrrr.analysis.elsewhere import in_type
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "tf32"
NUMERICS = "rounding"
CODE = """
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = True  # convolutions; the default
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """The low end of the finding, which is TF32, up to what a better share of the peak would add."""
    if found.finding.code not in ("C01", "C03") or evidence.on_cpu:
        return None
    how = 'torch.set_float32_matmul_precision("high")'
    assumes = "TF32 kernels reach the share of their peak that float32 has now"
    claim = found.claim
    shorter = of_calls(evidence, claim.unit, claim.low, claim.low + (claim.ns - claim.low) / 2, better=True)
    typed = in_type(evidence, "tf32")
    return Plan(how, assumes, all_of(lambda _: typed, shorter))
