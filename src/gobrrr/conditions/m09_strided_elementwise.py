"""Pointwise operations on tensors whose dimensions have different orders in memory.

`x + z.t()` reads one operand row by row and the other across its rows. Each element of the other brings in a piece of
memory (32 to 64 bytes), and the rest of that piece is evicted before it is used. The operation takes ten times as long
as on two tensors in one order.

## How it is recognised

Pointwise calls with two or more full-shape tensors whose dimensions have different orders in memory (by their strides),
that take three times their floor or longer. Copies into another order are M05's, conversions M04's. An operation whose
tensors all have the same order, whichever it is, does not count: its result has that order as well.

## What it costs

    cost (high) = sum of t - floor
    cost (low)  = 0: one operand has to be transposed once, if nothing can produce it in the other order

The cost is capped at W - host (step time minus host time): only time in which the step waits for the device can be
saved.

## What helps

Give the operands the same order: transpose a constant once, outside of the step; let the matmul that makes a tensor
make its transpose (`b.t() @ a.t()`); use one layout for the whole model. A compiler can fold a transpose into the
operation that produces the tensor.

## Sick

```python
y = x + z.t()
```

## Healthy

```python
y = x + turned  # turned = z.t().contiguous(), made once
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.copies import COPY_OPS, dimension_order
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import COMPILED_FAMILY, output_of, tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.conditions.common import about_calls, of_step, unable
from gobrrr.model.diagnosis import NotChecked

CODE = "M09"
TITLE = "pointwise operations on tensors in different memory orders"

LEAST_SLOWDOWN = 3.0
"""The least ratio of a call's time to its floor: contiguous calls take up to twice theirs at a measured bandwidth."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Pointwise calls on tensors of different orders, far below the roof."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    calls = evidence.calls_where(np.array([_mixed(group) for group in evidence.priced.groups], dtype=bool))
    floor = evidence.calls.floor_ns[calls]
    calls = calls[evidence.calls.ns[calls] >= LEAST_SLOWDOWN * np.nan_to_num(floor, nan=np.inf)]
    if not len(calls):
        return None
    ns, floor, count = evidence.calls.ns[calls], evidence.calls.floor_ns[calls], evidence.steps.count
    high, low = ns - floor, np.zeros(len(calls))
    heaviest = evidence.group_of(int(calls[np.argmax(ns)]))
    strides = [list(tensor.strides or ()) for tensor in tensors(heaviest.call) if tensor.shape]
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        treatments=["keep-order"],
        facts=[
            f"{units.a_step(len(calls) / count, 'pointwise call')} on tensors in different memory orders: "
            f"{of_step(evidence, float(ns.sum()) / count)}, "
            f"{units.duration(float(floor.sum()) / count)} at the roof",
            f"strides of the heaviest: {', '.join(map(str, strides))}",
        ],
    )


def _mixed(group: CallGroup) -> bool:
    if (
        not group.work.fusible
        or group.work.family == COMPILED_FAMILY
        or group.call.name.removeprefix("aten::") in COPY_OPS
    ):
        return False
    shape, _ = output_of(group.call, group.work.family)
    orders = {dimension_order(tensor) for tensor in tensors(group.call) if tensor.shape == shape} - {None}
    return len(orders) > 1
