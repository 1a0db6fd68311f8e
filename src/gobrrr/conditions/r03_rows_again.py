"""Rows of earlier turns are computed again in every turn.

A loop that makes one token a turn and gives the model all tokens so far computes n rows for one that is new: for n
turns n * n / 2 rows where n would do. In a causal model the earlier rows come out as they did before.

## How it is recognised

In a live run a sample is kept of what each module is given and of what it returns; the same of the program's own
functions outside of modules. One that is called again with one dimension longer, where the rows before are those of the
last call and its result's rows are as well, has computed them again. A function is told where it has matrix products:
one without lays out what a cache holds. One module or function whose rows differ is enough for silence: then later rows
have a part in earlier ones, as in a model that is not causal, and a cache would change the results. A trace has no
values, so that nothing is said there.

## What it costs

    cost (high) = time of the modules' operations * rows that were there / rows
    cost (low)  = time of each * the share of its bytes that belongs to those rows: weights are read all the same

Keys and values of attention are read in full by either way.

## What helps

A cache of keys and values, filled by the first call, and the new row alone in each turn after it: `use_cache=True` in
Transformers, `past_key_values`. Where the model has none: each attention keeps its keys and values, in a tensor of the
whole length (M10). A window of fixed length that moves on has other positions in each turn: nothing of it can be kept.

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
