"""Let cuDNN time its algorithms instead of guessing one.

With `torch.backends.cudnn.benchmark` each new shape is convolved once with every algorithm that fits, and the fastest
is kept. It pays off where shapes repeat; where each batch has a shape of its own each one pays for the trial.
Algorithms differ by rounding, and which one wins may differ from run to run.

Predicted saving: from nothing (no algorithm for this shape, layout and type may be better) to the finding's high end.
Where it is on already, another layout or size is what is left.

For one layer alone: another memory format (`layer.to(memory_format=...)`), a batch of another size, the other type of
16 bit.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "cudnn-benchmark"
NUMERICS = "rounding"
CODE = """
torch.backends.cudnn.benchmark = True  # before the first step
layer = layer.to(memory_format=torch.contiguous_format)  # or for the layer alone
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """From nothing to the finding's high end."""
    if finding.code != "C06":
        return None
    switches = evidence.live.switches if evidence.live is not None else None
    high = finding.at_stake_ns[1]
    if switches is not None and switches.cudnn_benchmark:
        how = "another memory format or size for this layer: cudnn.benchmark is on already"
        return prescription(NAME, finding, (0.0, high), how, "a layout or a size that a better algorithm takes")
    how = "torch.backends.cudnn.benchmark = True; else another memory format for this layer"
    return prescription(
        NAME, finding, (0.0, high), how, "one of the other algorithms takes this shape, type and layout"
    )
