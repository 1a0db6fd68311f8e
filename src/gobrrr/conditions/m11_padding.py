"""Work on padding: sequences of unequal lengths in one batch, filled up to the longest.

A matmul does not know which positions hold a token. With seven sequences of 32 tokens and one of 256, four of five
positions of the batch are padding, and so are four of five FLOPs and bytes of every layer.

## How it is recognised

A live run looks at the values: ids that equal the embedding's `padding_idx` (or end in a run of one id), and keys that
an attention mask hides from every query. The finding needs at least a tenth of the positions. Targets that a loss
ignores do not count alone, since a prompt's targets are ignored too; they confirm the others. A trace has no values.

## What it costs

    cost (high) = share of padding x time of the calls with a size of all positions or of a sequence
    cost (low)  = 0: batches of similar length still have some padding, and how much depends on the data

In attention both the queries and the keys are padded, so its part may be larger. The cost is capped at W - host (step
time minus host time): only time in which the step waits for the device can be saved.

## What helps

Batches of sequences of similar length (sort within a window of the shuffled data), padded to the longest of the batch
and not to a fixed length; packing several sequences into one row, with attention that keeps them apart (varlen, nested
tensors, `flex_attention`); in Transformers `group_by_length` or a collator without padding.

## Sick

```python
batch = tokenizer(texts, padding="max_length", max_length=512, return_tensors="pt")
```

## Healthy

```python
texts = sorted(texts, key=len)  # within a window, then shuffle the batches
batch = tokenizer(texts[:32], padding="longest", return_tensors="pt")
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.padding import padding
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import about_calls, needs_live, of_step, without_shapes
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "M11"
TITLE = "work on padding"

LEAST_PADDING = 0.1
"""The least share of padding: most ways of batching by length leave less; chosen, not measured."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Padding in ids and masks, and the work that grows with the number of positions."""
    if evidence.profile.uses is None:
        return needs_live(CODE)
    padded = padding(evidence)
    if padded is None or padded.share < LEAST_PADDING:
        return None
    missing = without_shapes(CODE, evidence)
    if missing:
        return missing
    ns, count = evidence.calls.ns[padded.calls], evidence.steps.count
    high, low = ns * padded.share, np.zeros(len(ns))
    total = float(ns.sum()) / count
    where = Place(
        op=padded.said.op, module=padded.said.module, source=padded.said.source, shapes=padded.said.shapes,
        count=float(padded.said.count), ns=total,
    )  # fmt: skip
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (padded.calls, low, high),
        where=[where],
        certainty="high" if padded.agrees else "medium",
        treatments=["bucket-or-pack"],
        facts=[
            f"{units.percent(padded.share)} of {units.count(padded.tokens)} positions hold padding ({padded.said.op})"
            + (", and masks or targets say the same" if padded.agrees else ""),
            f"calls with a size of all positions or of a sequence take {of_step(evidence, total)}",
        ],
    )
