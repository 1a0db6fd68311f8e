"""The step compiles: a new graph, or a kernel that is generated or loaded for the first time, on the path of a step.

`torch.compile` compiles again when a guard fails: another shape, another Python number, a module's attribute that
changed. Each time takes seconds. After a limit (8) the function runs eagerly for good.

## How it is recognised

Events of the compiler within the analysed steps (dynamo, inductor, Triton, modules that the driver loads), and idle
time of the device while they run. A profile that begins with the first step shows compilation that a later one would
not: where only the first of several steps compiles, the finding says so.

## What it costs

    at stake = idle time of the device while the host compiles or loads, for one step of the window

## What helps

- `torch.compile(dynamic=True)`, or `torch._dynamo.mark_dynamic(x, 0)` for the dimension that varies.
- Static shapes: pad to a few lengths.
- Numbers that change as tensors (`lr=torch.tensor(...)`), not as Python floats.
- Warm up before profiling.

`TORCH_LOGS=recompiles` prints which guard failed.

## Sick

```python
step = torch.compile(step, dynamic=False)
for length in range(100, 200):
    step(tokens[:, :length])  # compiles for each
```

## Healthy

```python
torch._dynamo.mark_dynamic(tokens, 1)
step = torch.compile(step)
```
"""

from __future__ import annotations

import re

import numpy as np

from gobrrr import units
from gobrrr.analysis.calls import Call, classify
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.intervals import covered, union
from gobrrr.conditions.base import Found
from gobrrr.conditions.claims import of_gaps
from gobrrr.conditions.common import MOST_PLACES, finding
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O05"
TITLE = "compilation within the step"

REGION = re.compile(r"^Torch-Compiled Region: (\d+/\d+)")


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Idle time of the device under the compiler's events."""
    events, gaps = evidence.replayed, evidence.budget.gaps
    rows = np.flatnonzero(classify(events.names)[events.name] == Call.COMPILE)
    rows = rows[(events.end_ns[rows] > evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)]
    if not len(rows):
        return None
    ns = covered(union(events.start_ns[rows], events.end_ns[rows]), gaps.start, gaps.stop).astype(np.float64)
    idle = float(ns.sum()) / evidence.steps.count
    names = {events.name_of(row) for row in rows.tolist()}
    regions = sorted({match[1] for name in events.names if (match := REGION.match(name))})
    facts = [
        f"{units.count(len(rows) / evidence.steps.count)} events of a compiler or of loading kernels a step "
        f"({', '.join(sorted(names)[:3])}); the device idles for {units.duration(idle)} meanwhile",
        *([f"compiled regions that ran: {', '.join(regions[:8])}"] if regions else []),
        *_which_step(evidence, rows),
    ]
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_places(evidence, rows),
        at_stake=(idle, idle),
        claim=of_gaps(evidence, np.arange(len(gaps)), ns),
        certainty="high",
        treatments=["static-shapes"],
        facts=facts,
    )


def _which_step(evidence: Evidence, rows: I8) -> list[str]:
    """Where only the first of several steps compiles, that is a warm-up that was recorded."""
    begins = np.array(evidence.steps.begins)
    if len(begins) < 2:
        return ["one step was recorded: whether later ones compile as well can't be told"]
    steps = np.unique(np.searchsorted(begins, evidence.replayed.start_ns[rows], side="right"))
    if steps.max() <= 1:
        return ["only the first recorded step compiles: warm up before profiling"]
    return [f"{units.count(len(steps))} of {units.count(len(begins))} recorded steps compile"]


def _places(evidence: Evidence, rows: I8) -> list[Place]:
    events = evidence.replayed
    longest = rows[np.argsort(-events.duration_ns[rows], kind="stable")][:MOST_PLACES]
    return [
        Place(op=events.name_of(row), source=evidence.source(row), count=1.0, ns=float(events.duration_ns[row]))
        for row in longest.tolist()
    ]
