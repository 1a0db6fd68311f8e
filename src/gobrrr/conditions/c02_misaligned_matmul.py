"""Matmuls with dimensions that the tensor cores' loads don't divide: a vocabulary of 50,257 instead of 50,304.

A thread of a matmul kernel loads 16 bytes at once: 8 numbers of 16 bit, 16 of 8 bit, 4 of float32. Where the rows in
memory are no multiple of that, the library falls back to kernels that load in small pieces ("align1" in their names),
often of an older generation, at a small part of the peak.

## How it is recognised

Compute-bound matmuls of at least 20 us, with a size along the contiguous dimension of an operand or of the result
that is no multiple of 16 bytes, which reach less than 70 % of the share of the peak that the trace's own aligned
matmuls reach together (60 % of the peak is taken for those where the trace has none). The number of rows that are
only counted along (tokens of a batch) does not matter. What belongs to materialised attention is M02's.

## What it costs

With t a call's time, f its floor, p how much padding grows its FLOP and s the aligned matmuls' share of the peak:

    cost (low)  = sum of t - f * p / (2/3 * s)
    cost (high) = sum of t - f * p / s

Both count only as far as the device is what the step waits for: W - host bounds them.

## What helps

- Pad the dimension to a multiple of 64 (128 for a vocabulary) once, where the weight is made; mask the padded logits.
- `torch.compile` pads matmuls itself, copying an operand each time (`torch._inductor.config.shape_padding`).

It gives nothing where the matmul is bound by memory or the step by launches, and a multiple of 8 is the least: the
size of the tiles matters as well.

## Sick

```python
head = torch.nn.Linear(768, 50257, bias=False)
```

## Healthy

```python
head = torch.nn.Linear(768, 50304, bias=False)  # 50257 padded to a multiple of 64
logits = head(x)[..., :50257]
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.alignment import USUAL_SHARE, aligned_share, large_matmuls, odd_sizes, padded
from gobrrr.analysis.claims import Found, of_calls
from gobrrr.analysis.evidence import Evidence, shapes_text
from gobrrr.analysis.path import step_saving
from gobrrr.analysis.ratios import share as share_of
from gobrrr.conditions.common import by_signature, certainty_of, finding, places, unable
from gobrrr.model.diagnosis import NotChecked

CODE = "C02"
TITLE = "misaligned matmul dimensions"

FAR = 0.7
"""Aligned matmuls of one trace differ by about this much among themselves; what is closer may have another cause."""

WORST = 2 / 3
"""The low end takes the padded matmul to be this much worse than the aligned ones together."""


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Large matmuls with odd sizes, far below the aligned ones."""
    if not evidence.device.tensor_cores:
        return None  # a processor loads rows of any length at one rate: the rule is that of matrix units
    missing = unable(CODE, evidence)
    if missing:
        return missing
    own = aligned_share(evidence)
    share = USUAL_SHARE if own is None else own
    candidates = [call for call in large_matmuls(evidence).tolist() if odd_sizes(evidence.group_of(call))]
    ns, floor = evidence.calls.ns, evidence.calls.floor_ns
    calls = np.array([call for call in candidates if floor[call] < FAR * share * ns[call]], dtype=np.int64)
    if not len(calls):
        return None
    then = floor[calls] * np.array([padded(evidence.group_of(call)) for call in calls.tolist()]) / share
    high = np.maximum(ns[calls] - then, 0.0)
    low = np.maximum(ns[calls] - then / WORST, 0.0)
    count = evidence.steps.count
    heaviest = evidence.group_of(int(calls[np.argmax(ns[calls])]))
    reach = share_of(float(floor[calls].sum()), float(ns[calls].sum()))
    sizes = sorted({size for call in calls.tolist() for size in odd_sizes(evidence.group_of(call))})
    return finding(
        evidence,
        CODE,
        TITLE,
        where=places(evidence, by_signature(evidence, calls)),
        at_stake=step_saving(evidence, calls, low, high),
        claim=of_calls(calls, low, high),
        certainty=certainty_of(evidence, "medium" if own is None else "high"),
        treatments=["pad-dimensions", "compile"],
        facts=[
            f"sizes that 16 bytes don't divide: {', '.join(map(str, sizes[:4]))}; {units.count(len(calls) / count)} "
            f"matmuls a step, the heaviest {shapes_text(heaviest)}",
            f"{units.duration(float(ns[calls].sum()) / count)} of {units.duration(evidence.wall_ns)} at "
            f"{units.percent(reach)} of the matrix peak; at the peak they take "
            f"{units.duration(float(floor[calls].sum()) / count)}",
            f"the trace's aligned matmuls reach {units.percent(own)} of it"
            if own is not None
            else f"the trace has no aligned matmul to compare with: {units.percent(USUAL_SHARE)} is assumed",
            f"the heaviest one's kernel: {heaviest.call.kernels[-1]}",
        ],
    )
