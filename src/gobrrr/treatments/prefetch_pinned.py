"""Copy the next batch from pinned memory while the step runs.

From pageable memory a copy blocks the host and goes through a staging buffer at a fraction of the link. From pinned
memory, with `non_blocking=True` and one batch ahead, it overlaps with the step.

Replayed: copies from pageable memory take the link's time and are staged no more; beyond the least all copies of
input run on a stream of their own that nothing waits for, one step ahead.

Pinning memory takes time itself: let the loader do it (`pin_memory=True`), not the step. `non_blocking=True`
without pinned memory gives nothing.
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.claims import Found
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.analysis.inputs import inward_copies, pageable_copies
from gobrrr.analysis.regions import prefetched

NAME = "prefetch-pinned"
NUMERICS = "none"
CODE = """
loader = DataLoader(dataset, batch_size, num_workers=8, pin_memory=True)
batch = batch.to("cuda", non_blocking=True)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """The copies at the link's speed, one step ahead; None without any."""
    if found.finding.code not in ("D01", "D02") or evidence.on_cpu:
        return None
    copies = pageable_copies(evidence) if found.finding.code == "D02" else inward_copies(evidence)
    exposed = float(evidence.budget.owned_ns[copies].sum()) / evidence.steps.count
    if exposed <= 0:
        return None
    rows = evidence.priced.links.device[copies]
    moved = float(evidence.events.bytes[rows].sum()) / evidence.recorded_steps.count
    how = 'DataLoader(..., pin_memory=True) and batch.to("cuda", non_blocking=True)'
    assumes = f"{units.bytes_(moved)} a step across the host link; high: the copy overlaps with the step before"
    return Plan(how, assumes, prefetched(evidence, copies), once=True)
