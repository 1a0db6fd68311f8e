"""Every turn of a loop computes the rows of earlier turns again.

A loop that generates one token a turn (iteration) and passes all tokens so far to the model computes n rows for one
that is new: n * n / 2 rows for n turns, where n would do. In a causal model the earlier rows do not change.

## How it is recognised

A live run keeps samples of the inputs and outputs of each module, and of the program's own functions outside of
modules. A module or function computed rows again if one dimension of its input grew since its last call, and the
earlier rows of both input and output are the same. A function counts only if it has matrix products: one without only
arranges what a cache holds. If the rows of any module or function changed, nothing is reported: earlier rows then
depend on later ones, as in a model that is not causal, and a cache would change the results. A trace has no values, so
nothing is reported there.

## What it costs

    cost (high) = time of the modules' operations * earlier rows / all rows
    cost (low)  = time of each operation * the share of its bytes that belongs to earlier rows: weights are read anyway

Attention reads all keys and values either way.

## What helps

A cache of keys and values, filled by the first call, and only the new row in each later turn: `use_cache=True` in
Transformers, `past_key_values`. If the model has none: each attention keeps its keys and values in a tensor of the full
length (M10). A sliding window of fixed length has other positions in each turn: nothing of it can be kept.

## Sick

```python
for _ in range(tokens):
    ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
```

## Healthy

```python
logits, cache = model(ids, cache=None)
for _ in range(tokens):
    new = logits[:, -1:].argmax(-1)
    logits, cache = model(new, cache=cache)
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.again import Repeated, repeated
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import MOST_PLACES, about_calls
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "R03"
TITLE = "earlier rows computed again in every turn"
TREATMENT = "kv-cache"


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Modules that compute the rows of earlier turns again, by the line that calls them."""
    if evidence.profile.seen is None or evidence.profile.seen.again is None:
        return NotChecked(code=CODE, needs="needs a live run: gobrrr diagnose file.py:step")
    found = repeated(evidence, "rows")
    if not found:
        return None
    calls, low, high = (np.concatenate(parts) for parts in zip(*((o.calls, o.low, o.high) for o in found), strict=True))
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        where=[_place(evidence, one) for one in found[:MOST_PLACES]],
        certainty="high",
        treatments=[TREATMENT],
        facts=[_fact(evidence, one) for one in found[:MOST_PLACES]],
    )


def _place(evidence: Evidence, one: Repeated) -> Place:
    steps, again = evidence.steps.count, one.again
    ns = float(evidence.calls.ns[one.calls].sum()) / steps
    return Place(op=again.op, module=again.module, source=again.source, count=len(one.calls) / steps, ns=ns)


def _fact(evidence: Evidence, one: Repeated) -> str:
    again = one.again
    at = f" ({again.source})" if again.source else ""
    first, last = again.rows[0], again.rows[-1]
    ns, what = one.ns / evidence.steps.count, again.module or again.op
    return (
        f"{what}{at}: {units.things(again.times, 'turn')} with {first[1]} to {last[1]} rows, of which "
        f"{first[0]} to {last[0]} come out as before: {units.duration(ns)} of {units.duration(evidence.wall_ns)}"
    )
