"""Pad a matmul's odd dimension to a multiple of 64.

Where 16 bytes divide each row, the library takes its usual kernels. Pad the weight once, where it is made; a few
columns more cost nothing beside that.

Replayed: what the finding claims, from its low to its high end: the padded matmul at the share of the peak that the
trace's aligned ones reach at the high end, at two thirds of it at the low end.

Padded logits must not take part: cut them off, or mask them. Checkpoints hold the padded shape.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "pad-dimensions"
NUMERICS = "rounding"
HOW = "pad the dimension to a multiple of 64 (a vocabulary: 128)"
CODE = """
head = torch.nn.Linear(width, -(-vocabulary // 64) * 64, bias=False)
logits = head(x)[..., :vocabulary]
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "C02":
        return None
    assumes = "the padded matmul gets the kernels of the aligned ones"
    return of_claim(evidence, found, HOW, assumes, better=True)
