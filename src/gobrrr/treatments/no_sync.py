"""Reduce gradients once a step: `no_sync()` around all micro-batches of an accumulation but the last.

Predicted: only the collectives of a step's last micro-batch run and are launched. The ranks of a folder are replayed
together. The gradients are the same sums, added in another order.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.micro_batches import micro_batches
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.reductions import reduced_once
from gobrrr.treatments.framework.wording import line, model_of

NAME = "no-sync"
NUMERICS = "rounding"
CODE = """
for number, micro in enumerate(micro_batches):
    with contextlib.nullcontext() if number == len(micro_batches) - 1 else model.no_sync():
        loss_fn(model(micro)).backward()
optimizer.step()
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """Only the collectives of the last micro-batch are left."""
    if found.finding.code != "N02":
        return None
    model = model_of(evidence)
    around = line(f"with {model}.no_sync():", "around all micro-batches but the last")
    how = f"{around}\n    loss_fn({model}(x), y).backward()"
    effect = reduced_once(evidence, micro_batches(evidence))
    return TreatmentPlan(how, "the sums of all micro-batches are reduced once", effect, once=True)
