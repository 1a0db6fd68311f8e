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
from gobrrr.analysis.detect.again import RepeatedAtPlace, repeated
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import PLACES_SHOWN, about_calls, needs_live, of_step
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "R03"
TITLE = "rows of earlier turns computed again in every turn"
TREATMENT = "kv-cache"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Modules that compute the rows of earlier turns again, by the line that calls them."""
    if evidence.profile.seen is None or evidence.profile.seen.again is None:
        return needs_live(CODE)
    modules = repeated(evidence, "rows")
    if not modules:
        return None
    parts = zip(*((module.calls, module.low, module.high) for module in modules), strict=True)
    calls, low, high = (np.concatenate(part) for part in parts)
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        where=[_place(evidence, module) for module in modules[:PLACES_SHOWN]],
        certainty="high",
        treatments=[TREATMENT],
        facts=[_fact(evidence, module) for module in modules[:PLACES_SHOWN]],
    )


def _place(evidence: Evidence, module: RepeatedAtPlace) -> Place:
    steps, again = evidence.steps.count, module.again
    ns = float(evidence.calls.ns[module.calls].sum()) / steps
    return Place(op=again.op, module=again.module, source=again.source, count=len(module.calls) / steps, ns=ns)


def _fact(evidence: Evidence, module: RepeatedAtPlace) -> str:
    again = module.again
    source = f" ({again.source})" if again.source else ""
    first, last = again.rows[0], again.rows[-1]
    return (
        f"{again.module or again.op}{source}: {units.things(again.times, 'turn')} with {first[1]} to {last[1]} rows, "
        f"of which {first[0]} to {last[0]} are the same as before: "
        f"{of_step(evidence, module.ns / evidence.steps.count)}"
    )
