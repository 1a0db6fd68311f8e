"""Load and transform batches in worker processes, ahead of the step.

With N workers the step waits for input only as long as item time * batch / N exceeds the step itself.

Predicted: loading, and long operations that prepare the next batch, leave the host's path. At the low end each batch
costs its handing over; beyond that, everything that prepares input in the idle time before it leaves too, but not the
copy (see prefetch-pinned). A step takes no less than the workers together need for a batch; at the low end no less than
half as many would need. Where the CPU is the device the low end is nothing, because the workers share its caches, its
memory and maybe its cores with the step (a step of 26.6 ms, 2 of them in loading, took 28.6 with one worker on the
core's other thread). The suggested number of workers is the number of processors that the step leaves free, at most 8.

Handing over a batch takes 0.4 ms and more: a batch that is loaded in less time is promised nothing. For a small dataset
in memory workers make it slower: index a whole batch at once instead (see index-batch). Where the step starts workers,
as every epoch of a loader without `persistent_workers=True` does, the saving is their start. Workers that each open a
thread per core slow each other down: call `torch.set_num_threads(1)` in `worker_init_fn`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr import units
from gobrrr.analysis.events.intervals import Spans
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.inputs import input_gaps
from gobrrr.analysis.host.items import starts
from gobrrr.analysis.replay.what_if import hosted
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import loading_ns, not_loading
from gobrrr.model.events import EventKind
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, loading
from gobrrr.treatments.framework.way import INPUT, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import changed_loader, said

NAME = "dataloader-workers"
NUMERICS = "none"
CODE = """
loader = torch.utils.data.DataLoader(..., num_workers=8, persistent_workers=True)  # its other arguments stay
"""

MOST_WORKERS = 8
"""Workers suggested at most. Chosen, not measured."""
SLOWER_TOGETHER = 2.0
"""How many workers do the work of one at the low end, because they share caches, memory and the handing over. Assumed,
not measured."""
HANDOVER_NS = 400_000
"""Time to take a batch of 32 samples of ten numbers from one worker (torch 2.13 on two cores, median of 100); without
workers the same batch took 12 us. A larger batch takes longer."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """Loading leaves the host's path; a step takes no less than the workers need for a batch."""
    if found.finding.code != "D01":
        return None
    begun = starts(evidence)
    if begun.length:
        return _started_once(evidence, begun)
    idle = sum(gap.stop - gap.start for gap in input_gaps(evidence)) / evidence.steps.count
    single = _single(evidence)
    if 0 < idle <= HANDOVER_NS * single:
        how = said(
            "num_workers=0, and a whole batch at once: __getitems__(indices) of the dataset, or slices of a tensor"
        )
        assumes = "loading a batch takes less time than a worker needs to hand one over"
        return TreatmentPlan(how, assumes, None)
    workers = _workers(evidence)
    given = {"num_workers": str(workers), "persistent_workers": "True"}
    how = changed_loader(evidence, given)
    load = loading_ns(evidence)
    slower = load / max(workers / SLOWER_TOGETHER, 1.0)  # a single worker has nobody to share with
    effect = not_loading(evidence, HANDOVER_NS * single)
    assumes = "enough cores: item time * batch / workers is below the step"
    return TreatmentPlan(how, assumes, effect, least_ns=(load / workers, slower), once=True)


def _started_once(evidence: Evidence, begun: Spans) -> TreatmentPlan:
    """The step starts the workers: keep them instead."""
    how = f"{said('make the loader once, before the loop over epochs')}\n"
    how += changed_loader(evidence, {"persistent_workers": "True"})
    assumes = "the same workers serve all epochs"
    return TreatmentPlan(how, assumes, lambda _: lambda graph: hosted(graph, begun.start, begun.stop, 0.0))


def _single(evidence: Evidence) -> float:
    """Batches per step that a loader makes in this thread."""
    events = evidence.replayed
    rows = events.of(EventKind.OP, EventKind.ANNOTATION)
    rows = rows[(events.start_ns[rows] >= evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)]
    wanted = [at for at, name in enumerate(events.names) if "_SingleProcessDataLoaderIter" in name]
    return float(np.isin(events.name[rows], wanted).sum()) / evidence.steps.count


def _workers(evidence: Evidence) -> int:
    """Workers for which the step leaves processors free, at least 1; MOST_WORKERS where that is not known."""
    threads = evidence.profile.threads
    if threads is None:
        return MOST_WORKERS
    return _room(int(threads.available), threads.intra if evidence.device.on_host else 1)


def _room(processors: int, busy: int) -> int:
    """As many workers as the step leaves processors free."""
    return min(max(processors - busy, 1), MOST_WORKERS)


def _here(workload: Workload) -> int:
    """The number of workers for a workload in this process, so that a trial uses what was predicted."""
    import torch

    from gobrrr.system.cgroup import quota

    usable = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    available = min(usable, quota() or usable)
    return _room(int(available), 1 if applying.on_cuda(workload) else torch.get_num_threads())


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Makes the workload's DataLoader again, with persistent workers."""
    from torch.utils.data import IterableDataset

    loader: Any = workload.loader
    if loader is None:
        yield UnfitWay(NAME, "the workload has no loader")
    elif not loading.plain(loader):
        yield UnfitWay(NAME, "its loader is not torch.utils.data.DataLoader itself")
    elif loader.num_workers:
        yield UnfitWay(NAME, f"it has {units.things(loader.num_workers, 'worker')} already")
    elif isinstance(loader.dataset, IterableDataset):
        yield UnfitWay(NAME, "each worker would go through the whole of an iterable dataset")
    else:
        workers = _here(workload)
        pinned = ", pin_memory=True" if applying.on_cuda(workload) else ""
        yield TreatmentWay(
            name=NAME,
            treatment=NAME,
            apply=_apply,
            code="# where the loader is made; its other arguments stay as they are\n"
            f"loader = DataLoader(..., num_workers={workers}, persistent_workers=True{pinned})",
            numerics="none",
            rank=INPUT,
            as_if=(NAME,),
        )


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    if "loader" not in kept:
        pinned = {"pin_memory": True} if applying.on_cuda(workload) else {}
        workers = _here(workload)
        # they end with the loader, when the arm is dropped
        kept["loader"] = loading.rebuilt(workload.loader, num_workers=workers, persistent_workers=True, **pinned)
    yield replace(workload, loader=kept["loader"])
