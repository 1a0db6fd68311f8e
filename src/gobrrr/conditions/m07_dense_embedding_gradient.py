"""A large embedding has a dense gradient: all rows are zeroed, written and updated, although few are in use.

A step looks up some hundred rows of a table of a million. The gradient of an `nn.Embedding` still has the table's
shape: it is filled with zeros, a few rows are added to it, and the optimizer reads it, and reads and writes the table
and its own state, all rows of each.

## How it is recognised

`aten::embedding_dense_backward` with at least four times as many rows as ids, and the calls on tensors of the table's
shape (for a list of tensors: the table's part). A live run counts the rows that were used; a trace gives an upper
bound, one row an id. It does not count where a matmul takes a matrix of the table's shape: with tied input and output
weights the gradient is dense anyway.

## What it costs

With t the time of the calls over the table, u the share of the rows in use:

    cost (high) = t * (1 - u)
    cost (low)  = t * (1 - 4 u) - 40 launches: ids are sorted, rows gathered, updated and scattered back

Both are capped at W - host (step time minus host time): only time in which the step waits for the device can be saved.
The cost grows with the table and not with the batch: 15.4 -> 0.10 ms for 200,000 x 64 and 256 ids on a CPU of two
cores.

## What helps

`nn.Embedding(..., sparse=True)` with `SparseAdam` or `SGD`, for the table alone; other parameters keep their optimizer.
This changes the optimizer: moments of rows that were not looked up stay the same, and there is no weight decay.

## Sick

```python
table = torch.nn.Embedding(1_000_000, 64)
optimizer = torch.optim.Adam(table.parameters())
```

## Healthy

```python
table = torch.nn.Embedding(1_000_000, 64, sparse=True)
optimizer = torch.optim.SparseAdam(table.parameters())
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.embeddings import EMBEDDING_BACKWARD, EmbeddingTable, dense_tables
from gobrrr.analysis.findings.claims import F8, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.conditions.common import PLACES_SHOWN, about_calls, by_signature, of_step, places, unable
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "M07"
TITLE = "dense gradient of a large embedding"

MOST_ROWS_USED = 0.25
"""The most share of rows in use: with more, a sparse gradient moves about as many bytes."""

SPARSE_PASSES = 4.0
"""Passes over the used rows that replace one pass of a dense update: gather, coalesce, update, scatter."""

SPARSE_LAUNCHES = 40
"""Operations that a coalesced sparse gradient and SparseAdam need beyond those of the dense form (torch 2.13)."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Calls over all rows of tables of which few rows are in use."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    tables = [table for table in dense_tables(evidence) if table.used <= MOST_ROWS_USED]
    if not tables:
        return None
    calls = np.concatenate([table.passes for table in tables])
    savings = [_saving(evidence, table) for table in tables]
    low, high = (np.concatenate([saving[end] for saving in savings]) for end in (0, 1))
    more = SPARSE_LAUNCHES * len(tables) * path_of(evidence).host_per_launch * evidence.steps.count
    low = low * max(1.0 - more / max(float(low.sum()), 1.0), 0.0)
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        where=_where(evidence, tables),
        treatments=["sparse-embedding"],
        facts=[fact for table in tables for fact in _facts(evidence, table)],
    )


def _where(evidence: Evidence, tables: list[EmbeddingTable]) -> list[Place]:
    """The lookups that a live run saw, then the heaviest passes."""
    uses = evidence.profile.uses or ()
    shapes = {str([table.rows, table.width]) for table in tables}
    lookups = [
        Place(op=EMBEDDING_BACKWARD, module=use.module, source=use.source, shapes=use.shapes, count=float(use.count))
        for use in uses
        if use.kind == "rows" and use.op == EMBEDDING_BACKWARD and use.shapes in shapes
    ]
    passes = by_signature(evidence, np.concatenate([table.passes for table in tables]))
    gradients = [] if lookups else [table.gradients for table in tables if len(table.gradients)]
    return [*lookups, *places(evidence, gradients), *places(evidence, passes)][:PLACES_SHOWN]


def _saving(evidence: Evidence, table: EmbeddingTable) -> tuple[F8, F8]:
    ns = evidence.calls.ns[table.passes] * table.share
    return ns * max(1.0 - SPARSE_PASSES * table.used, 0.0), ns * (1.0 - table.used)


def _facts(evidence: Evidence, table: EmbeddingTable) -> list[str]:
    count = evidence.steps.count
    ns = float((evidence.calls.ns[table.passes] * table.share).sum()) / count
    return [
        f"a table of {units.count(table.rows)} x {units.count(table.width)} "
        f"({units.bytes_(table.bytes)} in float32), {units.a_step(table.ids, 'id')}: "
        f"{units.percent(table.used)} of its rows are used",
        f"{units.a_step(len(table.passes) / count, 'call')} over the whole table: {of_step(evidence, ns)}",
    ]
