"""All ranks wait for each other at a barrier in every step.

With a barrier each step takes as long as the slowest rank: where batches differ in length, or one rank logs or collects
garbage, all others wait. The reduction of gradients needs no barrier.

## How it is recognised

`torch.distributed.barrier()` once a step or more, by its Python frames and its operation.

## What it costs

    cost (high) = the host's time within it, while the device idles
    cost (low)  = 0: if the step reduces gradients as well, the waiting may only move there

Removing it helps where the slowest rank changes from step to step, and not where one rank is always slower.

## What helps

- No barrier in the loop: it belongs before and after checkpoints and evaluation.
- Batches of even lengths on all ranks (a sampler that sorts by length, packing), and the same extra work on all of them
  at the same step.

## Sick

```python
for batch in loader:  # lengths differ from rank to rank
    train(batch)
    torch.distributed.barrier()
```

## Healthy

```python
for batch in loader:
    train(batch)
```
"""

from __future__ import annotations

import re

import numpy as np

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import frames, idle_under, spans_of
from gobrrr.conditions.common import finding
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8, EventKind
from gobrrr.model.frame_names import FROM_LIBRARY

CODE = "N03"
TITLE = "a barrier in every step"
_BARRIER_FRAME = re.compile(rf"{FROM_LIBRARY}torch/distributed/distributed_c10d\.py\(\d+\): (monitored_)?barrier$")
"""Frames of the barrier, as the profiler names them."""
BARRIER_OPERATIONS = ("c10d::barrier", "gloo:barrier")
"""The barrier's operation, and the backend's own record of it."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Barriers, and the idle time within them."""
    operations = _operations(evidence)
    count = evidence.steps.count
    if len(operations) < count:
        return None
    rows = frames(evidence, lambda name: _BARRIER_FRAME.search(name) is not None)
    rows = rows if len(rows) else operations
    idle = idle_under(evidence, spans_of(evidence, rows)).astype(np.float64)
    gaps = np.flatnonzero(idle > 0)
    high = float(idle.sum()) / count
    facts = [
        f"{units.a_step(len(operations) / count, 'barrier')}: the host waits there for {units.duration(high)} while "
        "nothing computes",
        "one rank does not show how far ahead of the others it is",
    ]
    row = int(operations[0])
    place = Place(op=evidence.events.name_of(row), source=evidence.source(row), count=len(operations) / count, ns=high)
    return finding(
        evidence, CODE, TITLE, where=[place], at_stake=(0.0, high),
        claim=of_gaps(evidence, gaps, idle[gaps], np.zeros(len(gaps))), certainty="medium",
        treatments=["no-barrier"], facts=facts,
    )  # fmt: skip


def _operations(evidence: Evidence) -> I8:
    """Rows of the barriers within the steps: the operation, or the backend's own record of it."""
    events, steps = evidence.replayed, evidence.steps
    rows = events.of(EventKind.OP, EventKind.ANNOTATION)
    rows = rows[(events.end_ns[rows] > steps.start) & (events.start_ns[rows] < steps.stop)]
    barriers = rows
    for name in BARRIER_OPERATIONS:
        wanted = np.array([other == name for other in events.names] or [False], dtype=bool)
        barriers = rows[wanted[events.name[rows]]]
        if len(barriers):
            break
    return barriers
