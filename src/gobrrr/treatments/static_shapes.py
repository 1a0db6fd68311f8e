"""Keep a compiled step from compiling again.

Mark the dimensions that vary as dynamic, pad to a few lengths, hand numbers that change over as tensors, and run the
step a few times before measuring. `TORCH_LOGS=recompiles` names the guard that failed.

Predicted saving: all of the idle time under the compiler's events, in steps that would compile again; nothing at the
low end, because a warm-up that was recorded does not come back.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "static-shapes"
NUMERICS = "none"
HOW = "torch._dynamo.mark_dynamic(x, 0), or pad to a few lengths"
CODE = """
torch._dynamo.mark_dynamic(x, 0)  # the dimension that varies
step = torch.compile(step)
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """What the docstring says, of the finding's stake."""
    if finding.code != "O05":
        return None
    assumes = "high: every step would compile as the recorded ones did"
    return prescription(NAME, finding, (0.0, finding.at_stake_ns[1]), HOW, assumes)
