"""One operation takes much of the step.

Most operations take microseconds more or less. A few have forms that cost a thousand times what their result is worth:
a list of a mask's positions, a sort for a few values, a decomposition, a product of integers. One such line can
dominate the step, whatever else is tuned.

## How it is recognised

Device time (on a CPU: the time of its operations), added up by the operation that the program calls:

- An operation with a known slow form counts from a fifth of the step. The form is recognised by the operation's name,
  by the mask that indexes it, or by the type of its arguments.
- Any other operation counts with more than half of the step, if it has no floor or takes more than twice its floor.
  Operations that other conditions judge (contractions, convolutions, attention, norms, pointwise operations,
  reductions, optimizers) are left to them.

On a CPU an operation with a slow form counts with everything that runs inside it, including what it dispatches row by
row. On a GPU an operation with 64 launches or more goes through a batch piece by piece, and counts with the idle time
inside it. Repeated indices (M08), convolutions (C06) and attention (M02) are reported there where they can be priced.

## What it costs

    at stake (high) = the time of its calls beyond their floors, while the step waits for the device
                      + the idle time in an operation that is issued piece by piece
    at stake (low)  = 0: the time of the better form is not known

## What helps

- Positions of a mask: `torch.where`, `masked_fill`. To sample: draw positions, and draw again those that are excluded.
- `unique`, `sort`: `bincount`, `topk`, or do it once before the loop.
- `repeat_interleave(output_size=...)`.
- Decompositions: a cheaper one, a batched one, or not in each step.
- One-hot products: `F.embedding`, `index_select`.
- Products of integers: float32, which is exact up to 2**24.
- Convolutions with a long kernel: Fourier transforms.
- `repeat`: broadcasting or `expand`; `Embedding(max_norm=...)`: `renorm_` once after the update.

An operation without a known slow form is named with its line and its share of the step, without a remedy.

## Sick

```python
candidates = torch.nonzero(masks)  # 1.3 million positions, to draw 1024
rows = candidates[torch.randint(len(candidates), (1024,))]
```

## Healthy

```python
rows = torch.stack([torch.randint(size, (1024,)) for size in masks.shape], 1)
excluded = ~masks[rows[:, 0], rows[:, 1], rows[:, 2]]  # few: draw those again
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.slow_forms import HeavyOperation, beyond, claim_of, heavy
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import step_saving
from gobrrr.conditions.c06_convolution_cliff import check as of_convolutions
from gobrrr.conditions.common import PLACES_SHOWN, finding, short_op
from gobrrr.conditions.m02_attention import check as of_attention
from gobrrr.conditions.m08_repeated_index_backward import check as of_indices
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "C07"
TITLE = "one operation that takes much of the step"
TREATMENT = "other-form"

DETAILED_CHECKS = {"M08": of_indices, "C06": of_convolutions, "M02": of_attention}
"""Conditions that report the same calls in more detail."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Operations with a known slow form that take a fifth of the step, and others that take most of it."""
    operations = [operation for operation in heavy(evidence) if not _reported_elsewhere(evidence, operation)]
    if not operations:
        return None
    calls = np.concatenate([operation.calls for operation in operations])
    ns = beyond(evidence, calls)
    idle = sum(operation.idle for operation in operations) / evidence.steps.count
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, operation) for operation in operations[:PLACES_SHOWN]],
        at_stake=(0.0, step_saving(evidence, calls, np.zeros(len(calls)), ns)[1] + idle),
        claim=claim_of(evidence, operations),
        certainty="high",
        treatments=[TREATMENT] if any(operation.form is not None for operation in operations) else [],
        facts=[_fact(evidence, operation) for operation in operations[:PLACES_SHOWN]],
    )


def _reported_elsewhere(evidence: Evidence, operation: HeavyOperation) -> bool:
    closer = DETAILED_CHECKS.get(operation.form.condition) if operation.form is not None else None
    result = closer(evidence) if closer is not None else None
    return isinstance(result, ClaimedFinding) and not result.hidden


def _place(evidence: Evidence, operation: HeavyOperation) -> Place:
    count, ns = (amount / evidence.steps.count for amount in (len(operation.rows), operation.ns))
    return Place(op=operation.name, module=operation.module, source=operation.source, count=count, ns=ns)


def _fact(evidence: Evidence, operation: HeavyOperation) -> str:
    ns = operation.ns / evidence.steps.count
    source = f" ({operation.source})" if operation.source else ""
    why = operation.form.slow if operation.form is not None else "no slow form of it is known"
    share = units.percent(ns / evidence.wall_ns)
    return f"{short_op(operation.name)}{source}: {units.duration(ns)} a step, {share} of it; {why}"
