"""The profiler inflates this trace: the step takes less time without it.

Recording an operation costs the host a few microseconds, its shapes and Python frames more. Kernel durations are right,
but the host's time between them is too long. A step of 31 ms was recorded as 74 ms: most of the idle time in that
timeline is the profiler's own.

## How it is recognised

The recorded step time is at least 1.25 times the estimate without the profiler. The estimate replays the trace's own
launches with each host event shortened by what recording it costs. A live run measures the step without the profiler,
so there is nothing to report.

## What it costs

Nothing of the step: this is about what the trace can show. All other findings are based on the estimate.

## What helps

- Measure the step without the profiler, and believe that number.
- Record less: no stacks, no memory, `record_shapes` only to count work; a few steps, after a warm-up.

## Sick

```python
with torch.profiler.profile(with_stack=True, profile_memory=True, record_shapes=True) as prof:
    step()
```

## Healthy

```python
with torch.profiler.profile(record_shapes=True) as prof:
    step()
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import about_measurement
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.events import EventKind

CODE = "Q01"
TITLE = "the profiler inflates this trace"

LEAST_INFLATION = 1.25
"""The least ratio of recorded to estimated time: the estimate may be off by a quarter (docs/design.md, section 10)."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """A recorded step that is much longer than the estimated one."""
    if evidence.profile.times is not None:
        return None
    recorded, estimated = evidence.recorded_steps.wall_ns, evidence.wall_ns
    if recorded < LEAST_INFLATION * estimated:
        return None
    events, steps = evidence.events, evidence.recorded_steps
    kinds = ((EventKind.OP, "operations"), (EventKind.RUNTIME, "driver calls"), (EventKind.PYTHON, "Python frames"))
    inside = (events.start_ns >= (steps.begins[0] if steps.begins else steps.start)) & (events.start_ns < steps.stop)
    counts = [(int(np.count_nonzero(inside & (events.kind == kind))) / steps.count, word) for kind, word in kinds]
    switches = ", ".join(sorted(evidence.profile.meta.recorded)) or "none that the trace names"
    facts = [
        f"a recorded step takes {units.duration(recorded)}; without the profiler it is estimated to take "
        f"{units.duration(estimated)}",
        f"recorded in a step: {', '.join(f'{units.count(number)} {word}' for number, word in counts if number)}",
        f"profiler options that were on: {switches}",
    ]
    return about_measurement(CODE, TITLE, facts, [], [])
