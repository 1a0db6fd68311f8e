"""Reduce gradients once a step: `no_sync()` around all micro-batches of an accumulation but the last.

Predicted saving: the finding's interval, from nothing to the part of the exposed communication that is moved again.
The gradients are the same sums, added in another order.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "no-sync"
NUMERICS = "rounding"
CODE = """
for number, micro in enumerate(micro_batches):
    with contextlib.nullcontext() if number == len(micro_batches) - 1 else model.no_sync():
        loss_fn(model(micro)).backward()
optimizer.step()
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """The finding's stake."""
    if finding.code != "N02":
        return None
    how = "with model.no_sync(): around all micro-batches but the last"
    return prescription(NAME, finding, finding.at_stake_ns, how, "high: the ranks are in step, nothing else waits")
