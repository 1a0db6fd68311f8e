"""Keep the value on the device, so that the host does not wait for it.

Accumulate losses on the device and read them every N steps; replace an `if` on a tensor by `torch.where`; pass the
output size to operations whose output size depends on data (`nonzero_static`, `repeat_interleave(output_size=...)`).
`torch.cuda.set_sync_debug_mode("warn")` prints the line of each wait.

Predicted: the host goes on without these waits, and at the high end without the operations that read a value. That is
not the time for which the host was blocked: where the same side is the bottleneck before and after a wait, removing the
wait gains nothing.
"""

from __future__ import annotations

from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.waits import inner_waits
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import unread
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.wording import place, said

NAME = "remove-sync"
NUMERICS = "none"
CODE = """
total += loss.detach()  # on the device
if step % 100 == 0:
    print(total.item())  # one wait in a hundred steps
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The host does not wait inside the step."""
    if found.finding.code != "O02":
        return None
    effect = unread(evidence, inner_waits(evidence))
    return TreatmentPlan(_how(found.finding), "the host has nothing else to wait for", effect, once=True)


def _how(finding: Finding) -> str:
    """What to change at the first place; a driver call has no result that could stay on the device."""
    where = next((spot for spot in finding.where if spot.op), None)
    if where is None or where.op is None:
        return said("keep on the device what the host waits for")
    at = place(where.source)
    call = classify([where.op])[0]
    if call == HostCall.WAIT:
        return said(f"take {where.op} out of the step, or wait for an event of only what is needed", at)
    if call == HostCall.COPY:
        advice = "copy to pinned memory with non_blocking=True, and wait for an event when it is needed"
        return said(f"{where.op}: {advice}", at)
    return said(f"keep the result of {where.op} on the device", at)
