"""Gradients are reduced after every micro-batch of an accumulation, where once a step is enough.

`DistributedDataParallel` reduces gradients in each backward pass unless it is told not to. With N micro-batches a step,
N - 1 of the N reductions move sums that the next one moves again.

## How it is recognised

Several `DistributedDataParallel.forward` calls in one step of the optimizer, and as many repetitions of the same
collectives, in the same order with the same sizes, within each step.

## What it costs

    cost (high) = (N - 1) / N of the communication that nothing overlaps
    cost (low)  = 0

For a process that computes on a CPU: of its idle time while a collective runs. The low end is 0 because what overlaps
with the backward pass is free already, and waiting for slower ranks may move into the one reduction that is left.

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
from gobrrr.analysis.findings.claims import ClaimedFinding, TimeClaim, of_gaps, of_work
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import idle_under, spans_of
from gobrrr.analysis.host.micro_batches import GRADIENT_REDUCTIONS, micro_batches, repeats, rows_within
from gobrrr.analysis.pricing.price import WorkClass
from gobrrr.conditions.common import finding
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import EventKind

CODE = "N02"
TITLE = "gradients reduced on every micro-batch"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Collectives that repeat with the forward passes of a step."""
    batches = micro_batches(evidence)
    collectives = rows_within(evidence, GRADIENT_REDUCTIONS)
    if batches < 2 or not repeats(evidence, collectives, batches):
        return None
    share = (batches - 1) / batches
    high, claim = _exposed(evidence, share)
    per_step = len(collectives) / evidence.recorded_steps.count
    facts = [
        f"{batches} forward passes for each step of the optimizer, and {units.a_step(per_step, 'collective')}: "
        f"{units.count(per_step / batches)} after each pass",
        f"{units.count(per_step * share)} of them move sums that a later one moves again",
    ]
    row = int(collectives[0])
    place = Place(op=evidence.events.name_of(row), source=evidence.source(row), count=per_step, ns=high)
    return finding(
        evidence, CODE, TITLE, where=[place], at_stake=(0.0, high), claim=claim, certainty="medium",
        treatments=["no-sync"], facts=facts,
    )  # fmt: skip


def _exposed(evidence: Evidence, share: float) -> tuple[float, TimeClaim]:
    """(the ns of a step that can be saved, the claim behind them)."""
    if not evidence.device.asynchronous:
        rows = evidence.events.of(EventKind.ANNOTATION, EventKind.OP)
        wire = np.array([name.startswith(("gloo:", "mpi:", "ucc:")) for name in evidence.events.names], dtype=bool)
        idle = idle_under(evidence, spans_of(evidence, rows[wire[evidence.events.name[rows]]])).astype(np.float64)
        gaps = np.flatnonzero(idle > 0)
        ns = share * idle[gaps]
        return float(ns.sum()) / evidence.steps.count, of_gaps(evidence, gaps, ns, np.zeros_like(ns))
    owned = evidence.budget.owned_ns.astype(np.float64)
    work = np.flatnonzero((evidence.priced.kind == WorkClass.COMMUNICATION) & (owned > 0))
    kept = work[: round(len(work) * share)]
    return share * float(owned[work].sum()) / evidence.steps.count, of_work(evidence, kept, certain=False)
