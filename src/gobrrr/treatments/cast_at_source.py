"""Make float32 of an array where it comes in, before the first operation on it.

Everything behind the operation that mixed the types stays in the model's own type. The numbers have the seven digits
that the model has anyway.

Replayed: what the finding claims, from its low to its high end, the float64 calls at float32's floors with the share
of the roof that they reach now.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "cast-at-source"
NUMERICS = "rounding"
CODE = """
scale = torch.as_tensor(array, dtype=torch.float32)  # numpy's arrays are float64
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "C04":
        return None
    first = next((one for one in finding.where if one.source), None)
    at = f" in front of {first.op} ({first.source})" if first is not None else ""
    how = f"torch.as_tensor(array, dtype=torch.float32){at}"
    return of_claim(evidence, found, how, "nothing behind it needs more than seven digits")
