"""The same result is computed again: an operation on unchanged data in each step, or several times within one.

A mask, positions, rotary tables, the norm of a constant matrix, statistics of the whole data set, a weight assembled
from its parts in inference, an encoder that gets the same prompt in every turn (iteration): the result is the same as
before. No kernel is slow, and no compiler hoists the work out of the loop, because it does not know that the inputs are
constant.

## How it is recognised

A live run compares two steps operation by operation. Two results are the same if the operation, its plain arguments and
its inputs are. An input tensor of the program is identified by its storage and what was written into it, and, except
for parameters and buffers, by its contents. What both steps compute alike need not be computed in each, nor what one
step computes twice. The finding names a module's whole call if all of it repeats, otherwise the line.

Not reported:

- what depends on a parameter that is trained, on random numbers, or on data that differ from step to step;
- what depends on tensors that may be data: if every step gets the same batch, that batch is not taken for a constant;
- results that are written into afterwards or that nothing else reads, and a step that repeats as a whole;
- conversions of weights (M06), a checkpoint's recomputation (R01) and rows of earlier turns (R03).

A trace does not show which data an operation reads, so nothing is reported there.

## What it costs

    cost = time of the operations that are not needed + idle time of the device that launching them causes

For what is computed n times in a step, n - 1 times. The first term counts only while the step waits for the device
(W - host), the second only while the device idles.

## What helps

- Results of shapes and constants: once in `__init__`, `self.register_buffer("mask", mask, persistent=False)`. If the
  length varies: for the longest, or cached by length.
- Results of weights in inference: once after loading (`parametrize.remove_parametrizations`, `remove_weight_norm`), or
  within `parametrize.cached()`.
- Results of other tensors: once before the loop. Within a step: once before the turns that use it.

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
from gobrrr.analysis.detect.again import RepeatedAtPlace, repeated
from gobrrr.analysis.detect.weights import repeated_casts
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import PLACES_SHOWN, finding, needs_live, short_op
from gobrrr.conditions.vanishing import vanishing
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "R02"
TITLE = "the same result computed again"
TREATMENT = "compute-once"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Operations that compute a result again, by place."""
    if evidence.profile.seen is None or evidence.profile.seen.again is None:
        return needs_live(CODE)
    results = repeated(evidence, "steps", "turns")
    if not results:
        return None
    casts = repeated_casts(evidence).calls  # M06's
    calls = np.setdiff1d(np.concatenate([result.calls for result in results]), casts)
    ns = evidence.calls.ns[calls]
    gone = vanishing(evidence, calls, ns, ns)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, result) for result in results[:PLACES_SHOWN]],
        at_stake=gone.at_stake,
        claim=gone.claim,
        gone=calls,
        certainty="high",
        treatments=[TREATMENT],
        facts=[
            *(_fact(evidence, result) for result in results[:PLACES_SHOWN]),
            f"they take {units.duration(gone.device_ns)} a step, and {units.duration(gone.idle_ns)} to launch them",
        ],
    )


def _place(evidence: Evidence, result: RepeatedAtPlace) -> Place:
    again = result.again
    count, ns = (amount / evidence.steps.count for amount in (len(result.calls), result.ns))
    return Place(op=again.op, module=again.module, source=again.source, count=count, ns=ns)


INPUTS_IN_WORDS = {
    "numbers": "shapes and constants",
    "weights": "weights that do not change",
    "tensors": "tensors with the same contents",
}
"""What the result is computed of, for a reader, by the kind of input."""


def _fact(evidence: Evidence, result: RepeatedAtPlace) -> str:
    again = result.again
    what = f"all of {again.module}" if again.whole else f"{short_op(again.op)} and what leads to it"
    source = f" ({again.source})" if again.source else ""
    count = units.a_step(len(result.calls) / evidence.steps.count, "operation")
    when = "as in the step before" if again.kind == "steps" else f"{again.times} times in a step"
    return f"{what}{source}: {count} on {INPUTS_IN_WORDS.get(again.of, again.of)}, computed {when}"
