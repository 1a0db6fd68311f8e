"""Record the operations' shapes, so that their work can be counted.

Replayed: none of the step's time. It lets the conditions that price calls be looked at.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "record-shapes"
NUMERICS = "none"
HOW = """
with torch.profiler.profile(record_shapes=True) as prof:  # around your own step
    step()
""".strip()
CODE = """
with torch.profiler.profile(record_shapes=True) as prof:
    step()
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "Q02":
        return None
    assumes = "it makes the trace say more, not the step faster"
    return Plan(HOW, assumes, None)
