"""Micro-batches: forward passes per optimizer step, and the collectives that repeat with them."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.optimizers import OPTIMIZER_STEP
from gobrrr.model.events import I8, EventKind

DDP_FORWARD = "DistributedDataParallel.forward"
"""DDP's annotation of a forward pass."""
GRADIENT_REDUCTIONS = (
    "c10d::allreduce_",
    "c10d::reduce_scatter",
    "c10d::_reduce_scatter",
    "c10d::allreduce_coalesced_",
)
"""Operations that sum gradients over the ranks."""


def micro_batches(evidence: Evidence) -> int:
    """Forward passes of the wrapped model per optimizer step; 1 where that is not known or not a whole number."""
    forwards, steps = (len(rows_within(evidence, (name,))) for name in (DDP_FORWARD, OPTIMIZER_STEP))
    count = evidence.recorded_steps.count
    if steps not in (0, count) or forwards % count:
        return 1
    return max(forwards // count, 1)


def repeats(evidence: Evidence, rows: I8, times: int) -> bool:
    """Whether each step's collectives are the same sequence `times` times, by name and sizes."""
    count = evidence.recorded_steps.count
    if not len(rows) or len(rows) % (count * times):
        return False
    kinds = np.stack([evidence.events.name[rows], evidence.events.dims[rows]])
    shaped = kinds.reshape(2, count * times, -1)
    return bool((shaped == shaped[:, :1]).all())


def rows_within(evidence: Evidence, names: tuple[str, ...]) -> I8:
    """Rows of host events of these names that begin within the recorded steps, by start."""
    events, steps = evidence.events, evidence.recorded_steps
    wanted = np.array([name.startswith(names) for name in events.names] or [False], dtype=bool)
    rows = events.of(EventKind.OP, EventKind.ANNOTATION)
    rows = rows[wanted[events.name[rows]]]
    last = steps.host_stop if steps.host_stop is not None else steps.stop
    begin = steps.begins[0] if steps.begins else steps.start
    rows = rows[(events.start_ns[rows] >= begin) & (events.start_ns[rows] < last)]
    # the autograd thread may repeat an annotation
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    threads = events.thread[rows]
    busiest: I8 = rows[threads == np.bincount(threads).argmax()]
    return rows if names == GRADIENT_REDUCTIONS else busiest
