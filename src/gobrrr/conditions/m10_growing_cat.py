"""A tensor grows by concatenation: each token copies all keys and values that were there before.

`cache = torch.cat([cache, new])` makes a tensor that is longer by one, and copies the old one into it. For n tokens
that is the traffic of n * n / 2 tokens where n would do, memory for both tensors, and a new shape each time.

## How it is recognised

`aten::cat` of a tensor with pieces of at most a quarter of its length, repeatedly, within a step or from step to step:
each call begins with the shape that an earlier one produced. Calls are matched by their shapes, whichever dimension
grows.

## What it costs

    cost (high) = the part of these calls' time that copies what was there before
    cost (low)  = that less two launches a call: a slice and a copy replace the concatenation

The cost is capped at W - host (step time minus host time): only time in which the step waits for the device can be
saved. It grows with the length: 1,000 tokens of 8 heads of 64 took 16.6 ms by `cat` and 3.1 ms in place on a CPU of two
cores.

## What helps

A tensor of the full length, allocated once and filled by slices (`cache[:, :, at] = new`) or `index_copy_`; in
Transformers `cache_implementation="static"`. Shapes then stay the same, so that the step can be captured in a CUDA
graph. Attention over the full length instead of the filled part can cost more than the copies did.

## Sick

```python
for token in range(1000):
    k, v = torch.cat([k, new_k], 2), torch.cat([v, new_v], 2)
```

## Healthy

```python
for token in range(1000):
    k[:, :, token], v[:, :, token] = new_k, new_v
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.growth import GrowingTensor, growing
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.conditions.common import about_calls, of_step, places, without_shapes
from gobrrr.model.diagnosis import NotChecked

CODE = "M10"
TITLE = "a tensor that grows by concatenation"

IN_PLACE_LAUNCHES = 2
"""A slice and a copy replace one concatenation (on a CPU; on a GPU the slice launches nothing)."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Concatenations that begin with the shape that an earlier one produced."""
    missing = without_shapes(CODE, evidence)
    if missing:
        return missing
    tensors = growing(evidence)
    if not tensors:
        return None
    calls = np.concatenate([growth.calls for growth in tensors])
    high = evidence.calls.ns[calls] * np.concatenate([growth.old for growth in tensors])
    low = np.maximum(high - IN_PLACE_LAUNCHES * path_of(evidence).host_per_launch, 0.0)
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        where=places(evidence, [growth.calls for growth in tensors]),
        certainty="high" if len(calls) >= 4 else "medium",
        treatments=["preallocate"],
        facts=[_fact(evidence, growth) for growth in tensors],
    )


def _fact(evidence: Evidence, growth: GrowingTensor) -> str:
    count, ns = evidence.steps.count, evidence.calls.ns[growth.calls]
    return (
        f"{units.a_step(len(growth.calls) / count, 'concatenation')}, dimension {growth.dimension} from {growth.first} "
        f"to {growth.last}: {of_step(evidence, float(ns.sum()) / count)}, "
        f"{units.percent(float((ns * growth.old).sum() / max(ns.sum(), 1.0)))} of it to copy what was there before"
    )
