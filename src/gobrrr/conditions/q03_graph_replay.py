"""Kernels are replayed from a CUDA or HIP graph: the trace has no operation, shape or module for them.

A replay is one call on the host. The trace does not say what its kernels compute, or for which operation, so their work
cannot be counted. That is no fault of the step: a graph is the remedy for a launch-bound one.

## How it is recognised

At least 5 % of the device time was launched by a graph launch.

## What it costs

Nothing of the step: this is about what the trace can show.

## What helps

Profile the same step once without the graph (`torch.compile` without `mode="reduce-overhead"`,
`enforce_eager=True` in vLLM) with `record_shapes=True`: its kernels are the same, and they have their operations.

## Sick

```python
with torch.profiler.profile(record_shapes=True) as prof:
    graph.replay()
```

## Healthy

```python
with torch.profiler.profile(record_shapes=True) as prof:
    model(static_x)  # the step that was captured
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import about_measurement
from gobrrr.model.diagnosis import NotChecked

CODE = "Q03"
TITLE = "graph replays carry no operations"

LEAST_REPLAYED = 0.05
"""The least share of the device time that is reported: less changes no verdict; chosen, not measured."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Device time that a graph launch started."""
    links = evidence.priced.links
    owned = evidence.budget.owned_ns.astype(np.float64)
    unknown = links.in_graph & np.isnan(evidence.priced.floor_ns)  # a live run may know what was captured
    total, replayed = float(owned.sum()), float(owned[unknown].sum())
    if total <= 0 or replayed < LEAST_REPLAYED * total:
        return None
    count = evidence.steps.count
    inside = unknown & (owned > 0)
    facts = [
        f"{units.things(int(inside.sum()) / count, 'kernel')} and copies a step, {units.percent(replayed / total)} of "
        f"the device time, come from {units.things(len(np.unique(links.launch[inside])) / count, 'graph launch')}",
        "the trace has no operations, shapes or modules for them: nothing is reported about them",
    ]
    return about_measurement(CODE, TITLE, facts, ["eager-trace"], [])
