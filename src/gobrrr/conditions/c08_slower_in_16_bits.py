"""Matmuls run in 16 bits on a machine that is faster in float32.

A CPU without bfloat16 or float16 units has no fast kernels for these types: without AVX-512, matrix products took 5 to
80 times as long as in float32. `torch.autocast` and `model.bfloat16()`, which make a GPU faster, make such a machine
slower, and no warning says so.

## How it is recognised

Contractions, convolutions and attention on 16-bit tensors, on a machine whose float32 peak is higher than its 16-bit
peak, as measured by `gobrrr machine`. Where one of the two peaks is not known, nothing is claimed. The conversions
themselves are M04's.

## What it costs

With t a call's time, f its floor in float32 and d the time to dispatch an operation:

    cost (high) = sum of t - f
    cost (low)  = sum of t - 2 f - d: float32 at half of its roof;
                  0 where only a lower bound of the 16-bit peak is known

Both count only while the step waits for the device. The conversions come on top (M04).

## What helps

- No `torch.autocast` on this machine (`torch.autocast(..., enabled=False)`).
- A 16-bit model: `model.float()`, and float32 inputs. It takes twice the memory.

## Sick

```python
with torch.autocast("cpu", torch.bfloat16):  # a processor without AVX512-BF16 or AMX
    y = model(x)
```

## Healthy

```python
y = model(x)
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.autocasting import autocast_to, halved, known_from_below, sooner
from gobrrr.conditions.common import about_calls, certainty_of, of_step, unable
from gobrrr.model.diagnosis import NotChecked

CODE = "C08"
TITLE = "16-bit matmuls or convolutions where float32 is faster"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Products in 16 bits that would take less time in float32."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    products = halved(evidence)
    low, high = sooner(evidence, products)
    calls, low, high = products[high > 0], low[high > 0], high[high > 0]
    if not len(calls):
        return None
    below = known_from_below(evidence, calls)
    low = np.zeros_like(low) if below else low
    ns, count = float(evidence.calls.ns[calls].sum()), evidence.steps.count
    least, most = ((ns - float(saved.sum())) / count for saved in (high, low))
    autocast = autocast_to(evidence)
    facts = [
        f"{units.a_step(len(calls) / count, 'product')} in 16 bits: {of_step(evidence, ns / count)}; "
        f"in float32 they would take {units.duration_range(least, most)}"
    ]
    if below:
        facts.append("only a lower bound of the 16-bit peak is known: the real one may be above the float32 peak")
    if autocast is None:
        facts.append("with model.float() and float32 inputs they run in float32, with twice the memory")
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        certainty="low" if below else certainty_of(evidence),
        treatments=["no-autocast"] if autocast is not None else [],
        facts=facts,
    )
