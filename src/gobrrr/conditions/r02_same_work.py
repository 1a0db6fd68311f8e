"""The same work again: an operation on the same data in each step, or several times within one.

A mask, positions, rotary tables, the norm of a constant matrix, statistics of the whole data set, a weight put together
from its parts in inference, an encoder that is given the same prompt in every turn: the result is the one that was
there before. No kernel is slow, and no compiler takes it out of the loop, because it does not see that the inputs stay.

## How it is recognised

In a live run two steps are looked at operation by operation. The result of an operation is known by the operation, its
plain arguments and what it reads: a tensor of the program's by its storage, by what has been written into it, and for
all but parameters and buffers by its contents. What both steps compute alike need not be computed in each, nor what one
step computes twice. The whole call of a module is told, where all of it is the same, else the line.

Silent is what depends on a parameter that learns, on random numbers, on data that differ from step to step, and on
tensors of which it can't be told whether they are data: where every step is called with the same batch, that batch is
not taken for a constant. What is written into afterwards, what nothing else reads, and a step that is all of it the
same are left out too. Conversions of weights are M06's, a checkpoint's recomputation is R01's, rows of earlier turns
are R03's.
A trace does not say which data an operation reads, so that nothing is said there.

## What it costs

    cost = time of the operations that need not be + idle time of the device that launching them causes

Of what is computed n times in a step, n - 1 times. The first term counts only as far as the device is what the step
waits for (W - host), the second as far as it idles.

## What helps

- Made of shapes and constants: once in `__init__`, `self.register_buffer("mask", mask, persistent=False)`; where the
  length varies, for the longest, or kept by length.
- Made of weights in inference: once after loading (`parametrize.remove_parametrizations`, `remove_weight_norm`), or
  within `parametrize.cached()`.
- Made of other tensors: once before the loop. Within a step: once in front of the turns, and its result in all of them.

## Sick

```python
for x in loader:
    mean, std = data.mean(0), data.std(0)  # of the whole data set
    loss = model((x - mean) / std)
```

## Healthy

```python
mean, std = data.mean(0), data.std(0)
for x in loader:
    loss = model((x - mean) / std)
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.again import Repeated, repeated
from gobrrr.analysis.detect.weights import repeated_casts
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import MOST_PLACES, finding, short_op
from gobrrr.conditions.vanishing import vanishing
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "R02"
TITLE = "the same work again"
TREATMENT = "compute-once"


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Operations whose results had been there before, by place."""
    if evidence.profile.seen is None or evidence.profile.seen.again is None:
        return NotChecked(code=CODE, needs="needs a live run: gobrrr diagnose file.py:step")
    found = repeated(evidence, "steps", "turns")
    if not found:
        return None
    casts = repeated_casts(evidence).calls  # M06's
    calls = np.setdiff1d(np.concatenate([one.calls for one in found]), casts)
    ns = evidence.calls.ns[calls]
    gone = vanishing(evidence, calls, ns, ns)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, one) for one in found[:MOST_PLACES]],
        at_stake=gone.at_stake,
        claim=gone.claim,
        gone=calls,
        certainty="high",
        treatments=[TREATMENT],
        facts=[
            *(_fact(evidence, one) for one in found[:MOST_PLACES]),
            f"{units.duration(gone.device_ns)} a step for them, and {units.duration(gone.idle_ns)} to launch them",
        ],
    )


def _place(evidence: Evidence, one: Repeated) -> Place:
    steps, again = evidence.steps.count, one.again
    return Place(op=again.op, module=again.module, source=again.source, count=len(one.calls) / steps, ns=one.ns / steps)


OF = {
    "numbers": "shapes and constants",
    "weights": "weights that stay as they are",
    "tensors": "tensors that hold the same",
}


def _fact(evidence: Evidence, one: Repeated) -> str:
    again, steps = one.again, evidence.steps.count
    what = f"all of {again.module}" if again.whole else f"{short_op(again.op)} and what leads to it"
    at = f" ({again.source})" if again.source else ""
    count = units.a_step(len(one.calls) / steps, "operation")
    when = "as in the step before" if again.kind == "steps" else f"{again.times} times in a step"
    return f"{what}{at}: {count} on {OF.get(again.of, again.of)}, computed {when}"
