"""Copy the next batch from pinned memory while the step runs.

A copy from pageable memory blocks the host and goes through a staging buffer at a fraction of the link's bandwidth.
From pinned memory, with `non_blocking=True` and one batch ahead, it overlaps with the step.

Predicted: copies from pageable memory take the link's time and are not staged. Beyond the low end all copies of input
run one step ahead, on a stream of their own that nothing waits for.

Pinning memory takes time itself: let the loader do it (`pin_memory=True`), not the step. `non_blocking=True` without
pinned memory gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.inputs import inward_copies, pageable_copies
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import prefetched
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, loading
from gobrrr.treatments.framework.way import INPUT, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import changed_loader, said, where

NAME = "prefetch-pinned"
NUMERICS = "none"
CODE = """
loader = torch.utils.data.DataLoader(..., pin_memory=True)  # its other arguments stay as they are
batch = batch.to("cuda", non_blocking=True)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The copies at the link's speed, one step ahead; None without any."""
    if found.finding.code not in ("D01", "D02") or not evidence.device.own_memory:
        return None
    copies = pageable_copies(evidence) if found.finding.code == "D02" else inward_copies(evidence)
    exposed = float(evidence.budget.owned_ns[copies].sum()) / evidence.steps.count
    if exposed <= 0:
        return None
    rows = evidence.priced.links.device[copies]
    moved = float(evidence.events.bytes[rows].sum()) / evidence.recorded_steps.count
    loader = changed_loader(evidence, {"pin_memory": "True"})
    at = where(found.finding) if found.finding.code == "D02" else ""
    how = f"{loader}\n{said('non_blocking=True where the batch is copied to the device', at)}"
    assumes = f"{units.bytes_(moved)} a step across the host link; high: the copy overlaps with the step before"
    return TreatmentPlan(how, assumes, prefetched(evidence, copies), once=True)


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Wraps the workload's loader: each batch is pinned and copied before the step asks for it."""
    if workload.loader is None:
        yield UnfitWay(NAME, "the workload has no loader")
    elif not applying.on_cuda(workload):
        yield UnfitWay(NAME, "there is no device to copy to")
    else:
        yield TreatmentWay(
            name=NAME,
            treatment=NAME,
            apply=_apply,
            code=f"{CODE.strip()}  # on a side stream, one batch ahead",
            numerics="none",
            rank=INPUT + 1,  # outside of what makes the batches
            as_if=(NAME,),
        )


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    import torch

    if kept.get("of") is not workload.loader:
        loader = workload.loader
        if loading.plain(loader) and not getattr(loader, "pin_memory", False):
            loader = loading.rebuilt(loader, pin_memory=True)
        device = torch.device("cuda", torch.cuda.current_device())
        kept.update(of=workload.loader, ahead=loading.PrefetchedBatches(loader, device))
    yield replace(workload, loader=kept["ahead"])
