"""Gradients are reduced after every micro-batch of an accumulation, where once a step is enough.

`DistributedDataParallel` reduces in each backward pass unless it is told not to. With N micro-batches a step, N - 1 of
the N reductions move sums that the next one moves again.

## How it is recognised

Several `DistributedDataParallel.forward` to one step of the optimizer, and collectives that repeat so many times in
the same order with the same sizes within each step.

## What it costs

    at stake (high) = (N - 1) / N of the communication that nothing overlaps
    at stake (low)  = 0

Of a process that computes on a CPU: of its idle time in which a collective runs. What overlaps with the backward pass
is free already, and what remains of waiting for slower ranks gathers in the one reduction that is left: so the low
end.

## What helps

- `model.no_sync()` around all micro-batches but the last.
- FSDP: `set_requires_gradient_sync(False)`; it then keeps whole gradients, which takes memory.

## Sick

```python
for micro in batch.chunk(8):
    model(micro).backward()  # all gradients reduced, eight times
optimizer.step()
```

## Healthy

```python
for number, micro in enumerate(batch.chunk(8)):
    with contextlib.nullcontext() if number == 7 else model.no_sync():
        model(micro).backward()
optimizer.step()
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.price import Class
from gobrrr.analysis.scopes import idle_under, spans_of
from gobrrr.conditions.base import Found
from gobrrr.conditions.claims import Claim, of_gaps, of_work
from gobrrr.conditions.common import finding
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8, Kind

CODE = "N02"
TITLE = "gradients reduced on every micro-batch"
FORWARD = "DistributedDataParallel.forward"
OPTIMIZER = "Optimizer.step#"
REDUCES = ("c10d::allreduce_", "c10d::reduce_scatter", "c10d::_reduce_scatter", "c10d::allreduce_coalesced_")


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Collectives that repeat with the forward passes of a step."""
    times = micro_batches(evidence)
    collectives = _within(evidence, REDUCES)
    if times < 2 or not repeats(evidence, collectives, times):
        return None
    share = (times - 1) / times
    high, claim = _exposed(evidence, share)
    each = len(collectives) / evidence.recorded_steps.count
    facts = [
        f"{times} forward passes to a step of the optimizer, and {units.count(each)} collectives a step, "
        f"{units.count(each / times)} after each",
        f"{units.count(each * share)} of them move sums that the next one moves again",
    ]
    row = int(collectives[0])
    place = Place(op=evidence.events.name_of(row), source=evidence.source(row), count=each, ns=high)
    return finding(
        evidence, CODE, TITLE, where=[place], at_stake=(0.0, high), claim=claim, certainty="medium",
        treatments=["no-sync"], facts=facts,
    )  # fmt: skip


def micro_batches(evidence: Evidence) -> int:
    """Forward passes of the wrapped model to a step of the optimizer; 1 where that is not told or not whole."""
    forwards, steps = (len(_within(evidence, (name,))) for name in (FORWARD, OPTIMIZER))
    count = evidence.recorded_steps.count
    if steps not in (0, count) or forwards % count:
        return 1
    return max(forwards // count, 1)


def repeats(evidence: Evidence, rows: I8, times: int) -> bool:
    """Whether each step's collectives are `times` times the same, by name and sizes."""
    count = evidence.recorded_steps.count
    if not len(rows) or len(rows) % (count * times):
        return False
    kinds = np.stack([evidence.events.name[rows], evidence.events.dims[rows]])
    shaped = kinds.reshape(2, count * times, -1)
    return bool((shaped == shaped[:, :1]).all())


def _within(evidence: Evidence, names: tuple[str, ...]) -> I8:
    """Rows of host events of these names that begin within the recorded steps, by start."""
    events, steps = evidence.events, evidence.recorded_steps
    wanted = np.array([name.startswith(names) for name in events.names] or [False], dtype=bool)
    rows = events.of(Kind.OP, Kind.ANNOTATION)
    rows = rows[wanted[events.name[rows]]]
    last = steps.host_stop if steps.host_stop is not None else steps.stop
    begin = steps.begins[0] if steps.begins else steps.start
    rows = rows[(events.start_ns[rows] >= begin) & (events.start_ns[rows] < last)]
    # an annotation may stand on the autograd thread as well
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    threads = events.thread[rows]
    busiest: I8 = rows[threads == np.bincount(threads).argmax()]
    return rows if names == REDUCES else busiest


def _exposed(evidence: Evidence, share: float) -> tuple[float, Claim]:
    """(what could go of a step, what it rests on)."""
    if evidence.on_cpu:
        rows = evidence.events.of(Kind.ANNOTATION, Kind.OP)
        wire = np.array([name.startswith(("gloo:", "mpi:", "ucc:")) for name in evidence.events.names], dtype=bool)
        idle = idle_under(evidence, spans_of(evidence, rows[wire[evidence.events.name[rows]]])).astype(np.float64)
        gaps = np.flatnonzero(idle > 0)
        ns = share * idle[gaps]
        return float(ns.sum()) / evidence.steps.count, of_gaps(evidence, gaps, ns, np.zeros_like(ns))
    owned = evidence.budget.owned_ns.astype(np.float64)
    work = np.flatnonzero((evidence.priced.kind == Class.COMMUNICATION) & (owned > 0))
    kept = work[: round(len(work) * share)]
    return share * float(owned[work].sum()) / evidence.steps.count, of_work(evidence, kept, certain=False)
