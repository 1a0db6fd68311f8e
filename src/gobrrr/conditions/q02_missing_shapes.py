"""The trace has operations but no shapes, so their work cannot be counted.

Without shapes no floor is known: whether a kernel is at its roof, what a fusion would save and what a matmul should
take cannot be determined.

## How it is recognised

Device work belongs to operations, and none of them has recorded arguments. A replayed graph without operations is Q03.

## What it costs

Nothing of the step: this is about what the trace can show.

## What helps

`torch.profiler.profile(record_shapes=True)`.

## Sick

```python
with torch.profiler.profile() as prof:
    step()
```

## Healthy

```python
with torch.profiler.profile(record_shapes=True) as prof:
    step()
```
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import about_measurement, covered, shapes_known
from gobrrr.model.diagnosis import NotChecked

CODE = "Q02"
TITLE = "no shapes were recorded"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Operations without arguments."""
    owned = evidence.calls.op >= 0
    if not owned.any() or shapes_known(evidence):
        return None
    share = float(evidence.calls.ns[owned].sum()) / max(float(evidence.calls.ns.sum()), 1.0)
    facts = [
        f"{units.a_step(int(owned.sum()) / evidence.steps.count, 'call')} of operations, "
        f"{units.percent(share)} of the device's compute time; none has shapes",
        f"the least time is known for {units.percent(covered(evidence))} of the device's compute time",
    ]
    return about_measurement(CODE, TITLE, facts, ["record-shapes"], [])
