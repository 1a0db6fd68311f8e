"""Matrices multiplied in an expensive order: (A B) v makes a matrix that A (B v) never needs.

With n x n matrices (A B) v takes 2 n^3 + 2 n^2 FLOP, A (B v) takes 4 n^2. `torch.einsum` with three operands multiplies
from left to right unless opt_einsum is installed. An outer product that is summed afterwards writes to memory what a
matmul keeps on the chip.

## How it is recognised

- A chain of matrix products: each takes the result of the one before as an operand (matched by shape), no other call of
  the forward pass reads a tensor of that shape, and another order needs at most half of the FLOPs.
- An `einsum` of three or more operands whose products need twice the FLOPs of the cheapest pairwise order. The equation
  is inferred from how torch permutes each operand.
- An outer product (a `bmm` with inner dimension 1, or a multiplication that broadcasts both operands) followed by a
  `sum`: this is one contraction.
- The differences of all pairs (a subtraction that broadcasts both operands), then squared and summed, or their norm:
  squared distances are two sums of squares and one matrix product.

Layers (`aten::linear`) do not count: their weights are fixed, and an activation lies between them. Products of the
backward pass do not count either: they follow the order of the forward pass, so training gains more than is stated. The
exception is the tensor of all pairs: its backward work counts, and two contractions replace it. `(x A) B` with a small
rank in the middle (LoRA) is the cheap order already.

## What it costs

With t the time of the products, f their floor, g the floor of the cheapest order and e = f / t, the efficiency reached
now:

    cost (high) = sum of t - g / e
    cost (low)  = sum of t - 2 * g / e

The low end assumes that the other order's products, which are thinner, are half as efficient. Both are capped at
W - host (step time minus host time): only time in which the step waits for the device can be saved.

## What helps

- Parentheses: `A @ (B @ v)`; `torch.linalg.multi_dot([A, B, v])`.
- `pip install opt_einsum`: torch uses it for einsums of three or more operands.
- `torch.einsum`, a matmul, or `torch.linalg.vecdot` instead of an outer product and a sum.
- `torch.cdist` instead of the differences of all pairs. Distances of close points lose digits.

## Sick

```python
y = A @ B @ v  # (A @ B) @ v
g = (x.unsqueeze(2) * y.unsqueeze(1)).sum(0)
d = (a[:, None] - b[None]).pow(2).sum(-1)
```

## Healthy

```python
y = A @ (B @ v)
g = x.T @ y
d = torch.cdist(a, b).square()
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.all_pairs import all_pairs
from gobrrr.analysis.detect.chains import MultiplicationOrder, orders
from gobrrr.analysis.events.ratios import share as share_of
from gobrrr.analysis.findings.claims import F8, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.texts import shapes_text
from gobrrr.conditions.common import PLACES_SHOWN, about_calls, certainty_of, of_step, unable
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "C05"
TITLE = "matrices multiplied in an expensive order"
TITLE_DISTANCES = "pairwise distances computed from all differences"

LEAST_FACTOR = 2.0
"""The least ratio of the order's FLOPs to the cheapest order's: below it shapes and kernels decide; chosen."""

CALLED_OPERATION = {"einsum": "aten::einsum", "differences": "aten::sub"}
"""The operation that the program calls; for other kinds the heaviest operation is shown."""

THIN_SLOWDOWN = 2.0
"""The low end assumes that the other order is this much less efficient: its products are thinner; chosen."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Products, einsums and outer products that another order makes cheaper."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    expensive = [*orders(evidence, LEAST_FACTOR), *all_pairs(evidence)]
    if not expensive:
        return None
    calls = np.array([call for order in expensive for call in order.calls], dtype=np.int64)
    savings = [_saving(evidence, order) for order in expensive]
    low, high = (np.concatenate([saving[end] for saving in savings]) for end in (0, 1))
    by_saving = sorted(zip(savings, expensive, strict=True), key=lambda pair: -float(pair[0][1].sum()))
    ranked = [order for _, order in by_saving]
    return about_calls(
        evidence,
        CODE,
        TITLE_DISTANCES if ranked[0].kind == "differences" else TITLE,
        (calls, low, high),
        where=_places(evidence, ranked),
        certainty=certainty_of(evidence) if ranked[0].sure else "low",
        treatments=["reorder-contraction"],
        facts=_facts(evidence, ranked),
    )


def _saving(evidence: Evidence, order: MultiplicationOrder) -> tuple[F8, F8]:
    """(low, high) ns that each call of an order saves."""
    ns = evidence.calls.ns[list(order.calls)]
    total = float(ns.sum())
    then = order.best_floor_ns * max(share_of(total, order.now_floor_ns) or 1.0, 1.0)
    share = ns / max(total, 1.0)
    return share * max(total - THIN_SLOWDOWN * then, 0.0), share * max(total - then, 0.0)


def _places(evidence: Evidence, ranked: list[MultiplicationOrder]) -> list[Place]:
    """The places, with those of one operation, line and shapes added up."""
    by_place: dict[tuple[object, ...], Place] = {}
    count = evidence.steps.count
    for order in ranked:
        place = evidence.place(np.array(order.calls))
        op = CALLED_OPERATION.get(order.kind, place.op)
        key = op, place.source, place.shapes
        before = by_place.get(key)
        times, ns = (before.count or 0.0, before.ns or 0.0) if before else (0.0, 0.0)
        total = float(evidence.calls.ns[list(order.calls)].sum()) / count
        by_place[key] = Place(
            op=op, module=place.module, source=place.source, shapes=place.shapes,
            count=times + 1 / count, ns=ns + total,
        )  # fmt: skip
    return list(by_place.values())[:PLACES_SHOWN]


def _facts(evidence: Evidence, ranked: list[MultiplicationOrder]) -> list[str]:
    count, first = evidence.steps.count, ranked[0]
    ns = sum(float(evidence.calls.ns[list(order.calls)].sum()) for order in ranked) / count
    best = sum(order.best_floor_ns for order in ranked) / count
    facts = [
        f"{units.a_step(len(ranked) / count, 'expensive product')}: {of_step(evidence, ns)}; "
        f"in the cheapest order their floor is {units.duration(best)}",
        _of_first(evidence, first),
    ]
    if not first.sure:
        facts.append("the intermediate result is recognised by its shape, and another tensor has the same shape")
    return facts


def _of_first(evidence: Evidence, order: MultiplicationOrder) -> str:
    shapes = "; ".join(dict.fromkeys(filter(None, (shapes_text(evidence.group_of(call)) for call in order.calls))))
    if order.kind == "differences":
        return (
            f"the heaviest ({shapes}) writes the differences of all pairs only to square them; a matrix product of "
            f"{units.flop(order.now_flop)} gives the same sums"
        )
    if order.kind == "outer":
        return (
            f"the heaviest is an outer product that is then summed ({shapes}): one contraction of "
            f"{units.flop(order.now_flop)} does the same"
        )
    cheapest = f", as {order.how}," if order.how else ""
    return (
        f"the heaviest ({shapes}) takes {units.flop(order.now_flop)}; the cheapest order{cheapest} takes "
        f"{units.flop(order.best_flop)}"
    )
