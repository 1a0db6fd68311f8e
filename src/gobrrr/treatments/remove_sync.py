"""Keep the value on the device, so that the host does not wait for it.

Accumulate losses on the device and read them every N steps; replace an `if` on a tensor by `torch.where`; give
operations whose output size depends on data their size (`nonzero_static`, `repeat_interleave(output_size=...)`).
`torch.cuda.set_sync_debug_mode("warn")` prints the line of each wait.

Predicted saving: W minus the wall of the step replayed without these waits, up to the idle time that they leave. It
is never the time for which the host was blocked: where the device or the host is the bound on both sides of the
wait, removing it gives nothing.
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "remove-sync"
NUMERICS = "none"
CODE = """
total += loss.detach()  # on the device
if step % 100 == 0:
    print(total.item())  # one wait in a hundred steps
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """What the replay without the waits gains."""
    if finding.code != "O02":
        return None
    where = next((one.source or one.op for one in finding.where), None)
    how = f"keep the result of {where or 'the operation'} on the device"
    return prescription(NAME, finding, finding.at_stake_ns, how, "the host has nothing else to wait for")
