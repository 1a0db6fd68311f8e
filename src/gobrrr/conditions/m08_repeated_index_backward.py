"""The backward pass of advanced indexing adds values one after another, because their indices repeat.

`table[ids]` copies rows; its backward pass adds the gradient of each row back into the table. To make the result
independent of the order, a GPU sorts the indices and gives all values of one index to one worker; a CPU uses atomic
additions or one thread. With many values for few indices the additions are serialised. `index_put_(...,
accumulate=True)` called by the program behaves the same.

## How it is recognised

`index_put` calls that accumulate (with the flag, or within `IndexBackward0`), where at least half of the indices
repeat. A live run counts them. A trace only shows how many more values there are than elements in the target: a lower
bound.

## What it costs

With t the time of the calls, sorting included, b the bytes of the values (read) and of the target (read, written),
and r the rows of values:

    cost (high) = t - b / bandwidth, on a CPU t - max(b / bandwidth, 1.5 ns * r)
    cost (low)  = on a CPU t - max(b / (0.5 * bandwidth), 10 ns * r)
                      on a GPU 0: the replacement uses atomic additions, and which is faster depends on the shape

`index_add` on one thread took 1.5 ns for a row of one number and 10 ns for a row of 64: for rows of one number there is
nothing to gain. Both are capped at W - host (step time minus host time): only time in which the step waits for the
device can be saved. Reported elsewhere: a training twice as fast (pytorch#41162), 1.6 to 24 times for the backward pass
of one gather.

## What helps

`table.index_select(0, ids)` or `F.embedding(ids, table)`, which have a backward pass of their own; `torch.gather` along
one dimension; for a handful of rows a one-hot matmul. Where the program itself adds: `table.index_add_(0, ids, values)`
instead of `table.index_put_((ids,), values, accumulate=True)`.

## Sick

```python
rows = table[ids]  # 4 rows, 20,000 ids
rows.sum().backward()
```

## Healthy

```python
rows = table.index_select(0, ids)
rows.sum().backward()
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.accumulation import INDEX_PUTS, Accumulation, accumulations
from gobrrr.analysis.findings.claims import F8, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import PLACES_SHOWN, about_calls, needs_machine, places, without_shapes
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "M08"
TITLE = "repeated indices in the backward pass of indexing"
TITLE_FORWARD = "values added to repeated indices one by one"

LEAST_REPEATED = 0.5
"""The least share of values whose index repeats; chosen, not measured."""

ROW_NS = (1.5, 10.0)
"""Ns that index_add takes for a row of one number and for a row of 64, on one thread of a CPU."""

INDEX_ADD_SHARE = 0.5
"""Share of a CPU's bandwidth assumed for index_add: it moved 5.1 MB in 0.21 ms (24 GB/s) on one thread."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """`index_put` that accumulates into few indices, below the memory's bandwidth."""
    missing = without_shapes(CODE, evidence)
    if missing:
        return missing
    memory = evidence.machine.memory_bytes_per_s if evidence.machine else None
    if memory is None:
        return needs_machine(CODE)
    adding = [accumulation for accumulation in accumulations(evidence) if accumulation.repeated >= LEAST_REPEATED]
    if not adding:
        return None
    calls = np.concatenate([accumulation.calls for accumulation in adding])
    ns = evidence.calls.ns[calls]
    best, usual = (
        np.concatenate([_least(evidence, accumulation, memory.value, usual=usual) for accumulation in adding])
        for usual in (False, True)
    )
    high = np.maximum(ns - best, 0.0)
    low = np.maximum(ns - usual, 0.0) if evidence.device.adds_rows_in_turn else np.zeros(len(calls))
    return about_calls(
        evidence,
        CODE,
        TITLE_FORWARD if all(accumulation.forward for accumulation in adding) else TITLE,
        (calls, low, high),
        where=_where(evidence, adding),
        certainty="high" if evidence.device.adds_rows_in_turn else "medium",
        treatments=["gather-backward"],
        facts=[
            _fact(evidence, accumulation, float(_least(evidence, accumulation, memory.value).sum()))
            for accumulation in adding[:PLACES_SHOWN]
        ],
    )


def _where(evidence: Evidence, adding: list[Accumulation]) -> list[Place]:
    """The lines whose backward pass adds, if a live run saw them; otherwise the calls."""
    uses = evidence.profile.uses or ()
    lines = [
        Place(op=use.op, module=use.module, source=use.source, shapes=use.shapes, count=float(use.count))
        for use in sorted(uses, key=lambda use: -(use.total or 0))
        if use.kind == "duplicates" and use.op in INDEX_PUTS
    ]
    return lines[:PLACES_SHOWN] or places(evidence, [accumulation.calls for accumulation in adding])


def _least(evidence: Evidence, adding: Accumulation, bandwidth: float, *, usual: bool = False) -> F8:
    """Ns that the bytes need at the bandwidth, distributed over the calls by their times.

    On a CPU at least the time of its rows. `usual`: at the usual share of the bandwidth, and with the slower rows.
    """
    ns = evidence.calls.ns[adding.calls]
    needed = adding.bytes / bandwidth * 1e9
    if evidence.device.adds_rows_in_turn:
        needed = max(needed / (INDEX_ADD_SHARE if usual else 1.0), ROW_NS[int(usual)] * adding.rows)
    least: F8 = ns / max(float(ns.sum()), 1.0) * adding.count * needed
    return least


def _fact(evidence: Evidence, adding: Accumulation, least: float) -> str:
    count = evidence.steps.count
    share = units.percent(adding.repeated)
    share = share if adding.counted or share.startswith(">") else f"at least {share}"
    return (
        f"{units.a_step(adding.count / count, 'call')} to add {units.bytes_(adding.bytes)} each by index, "
        f"{share} of the values to an index that repeats: "
        f"{units.duration(float(evidence.calls.ns[adding.calls].sum()) / count)} a step, "
        f"{units.duration(least / count)} at the bandwidth"
    )
