"""Record the operations' shapes, so that their work can be counted.

Predicted saving: none of the step's time. It lets the conditions that price calls be looked at.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "record-shapes"
NUMERICS = "none"
HOW = "torch.profiler.profile(record_shapes=True)"
CODE = """
with torch.profiler.profile(record_shapes=True) as prof:
    step()
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """What the docstring says, of the finding's stake."""
    if finding.code != "Q02":
        return None
    assumes = "it makes the trace say more, not the step faster"
    return prescription(NAME, finding, (0.0, 0.0), HOW, assumes)
