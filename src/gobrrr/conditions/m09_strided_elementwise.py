"""Pointwise operations over tensors that lie in different orders in memory.

`x + z.t()` reads one operand row by row and the other across its rows: each element of it comes with a piece of memory
(32 to 64 bytes) of which nothing else is used before it is thrown out again. The operation is right, and ten times as
slow as on two tensors in one order.

## How it is recognised

Pointwise calls that take two or more tensors of their full shape whose dimensions lie in different orders (by their
strides), and that take three times their floor or longer. Copies into another order are M05's, conversions M04's. An
operation whose tensors all lie in the same order, whichever that is, is none: it is written in that order as well.

## What it costs

    cost (high) = sum of t - floor
    cost (low)  = 0: one operand has to be turned once, where nothing can produce it in the other order

It counts only as far as the device is what the step waits for: W - host bounds it.

## What helps

Make the operands in one order: turn a constant once, outside of the step; let the matmul that makes a tensor make its
transpose (`b.t() @ a.t()`); keep the layout of a whole model the same. A compiler can fold a transpose into the
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
from gobrrr.analysis.detect.copies import COPIES, dimension_order
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import COMPILED, output_of, tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.conditions.common import about_calls, unable
from gobrrr.model.diagnosis import NotChecked

CODE = "M09"
TITLE = "pointwise operations across the order in memory"

SLOW = 3.0
"""Times its floor that a call takes at least: contiguous ones take up to two of a measured bandwidth."""


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Pointwise calls on tensors of different orders, far below the roof."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    calls = evidence.calls_where(np.array([_mixed(group) for group in evidence.priced.groups], dtype=bool))
    floor = evidence.calls.floor_ns[calls]
    calls = calls[evidence.calls.ns[calls] >= SLOW * np.nan_to_num(floor, nan=np.inf)]
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
            f"{units.a_step(len(calls) / count, 'pointwise call')} on tensors of different orders: "
            f"{units.duration(float(ns.sum()) / count)} of {units.duration(evidence.wall_ns)}, "
            f"{units.duration(float(floor.sum()) / count)} at the roof",
            f"strides of the heaviest: {', '.join(map(str, strides))}",
        ],
    )


def _mixed(group: Group) -> bool:
    if not group.work.fusible or group.work.family == COMPILED or group.call.name.removeprefix("aten::") in COPIES:
        return False
    shape, _ = output_of(group.call, group.work.family)
    orders = {dimension_order(tensor) for tensor in tensors(group.call) if tensor.shape == shape} - {None}
    return len(orders) > 1
