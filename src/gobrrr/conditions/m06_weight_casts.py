"""Weights are converted to another dtype in every call, although they do not change.

Autocast caches a converted weight only if the weight requires a gradient and gradients are recorded. Under `no_grad` or
`inference_mode` each call converts every weight again. A norm that computes with `self.weight.float()` does the same by
hand, and so does a layer that dequantises int8 weights in each call: at a small batch that costs more than int8 saves.
Each conversion is a kernel of its own that reads and writes the whole weight, and a launch.

## How it is recognised

- In a live run: conversions of parameters among the operations dispatched in one step. In training, mixed precision
  needs one conversion to a smaller type for each weight and step, which is no finding; in inference all could be made
  once.
- In a trace without a backward pass: conversions of the weight argument of an `aten::linear` or a convolution, and of
  single rows that the norm right after them takes. That they are weights is inferred.

Conversions of activations, and of weights in training, are M04's.

## What it costs

    cost = time of the conversions that are not needed + idle time of the device that launching them causes

In inference that is all of them; for a weight that is cast n times in a training step, n - 1. The first term counts
only while the step waits for the device (W - host), the second only while the device idles. Measured elsewhere
(sglang-omni#2262): 3,220 of 17,044 kernels a call; 372 -> 299 ms for two rows, 981 -> 946 ms for eight.

## What helps

`model.to(torch.bfloat16)` once, without autocast; norms that need float32 keep a float32 copy. For quantised weights: a
kernel that multiplies them directly (torchao's, or fp8), or 16-bit weights at small batches.

## Sick

```python
with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
    y = model(x)
```

## Healthy

```python
model = model.to(torch.bfloat16)
with torch.inference_mode():
    y = model(x.to(torch.bfloat16))
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.weights import Conversions, repeated_casts
from gobrrr.analysis.events.ratios import share
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import (
    PLACES_SHOWN,
    by_signature,
    bytes_of,
    certainty_of,
    finding,
    of_step,
    places,
    unable,
)
from gobrrr.conditions.vanishing import vanishing
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "M06"
TITLE = "weights converted to another dtype in every call"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Conversions of parameters that could be made once."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    conversions = repeated_casts(evidence)
    if not len(conversions.calls):
        return None
    ns, count = evidence.calls.ns[conversions.calls], evidence.steps.count
    saved = ns * conversions.spared
    gone = vanishing(evidence, conversions.calls, saved, saved)
    moved = bytes_of(evidence, conversions.calls.tolist()) / count
    facts = [
        f"{units.a_step(len(conversions.calls) / count, 'conversion of weights')}: "
        f"{of_step(evidence, float(ns.sum()) / count)} "
        f"for {units.bytes_(moved)}, and {units.duration(gone.idle_ns)} to launch them",
    ]
    if float(saved.sum()) < 0.99 * float(ns.sum()):
        again = units.percent(share(float(saved.sum()), float(ns.sum())))
        facts.append(f"{again} of that repeats conversions that the step has already made")
    elif not evidence.training:
        facts.append("no backward pass ran: the weights do not change")
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_where(evidence, conversions),
        at_stake=gone.at_stake,
        claim=gone.claim,
        gone=conversions.calls,
        certainty=certainty_of(evidence, "high" if conversions.seen else "medium"),
        treatments=["cast-once"],
        facts=facts,
    )


def _where(evidence: Evidence, conversions: Conversions) -> list[Place]:
    """The lines that a live run saw; otherwise the calls by their shapes."""
    uses = evidence.profile.uses if conversions.seen else None
    if not uses:
        return places(evidence, by_signature(evidence, conversions.calls))
    casts = sorted((use for use in uses if use.kind == "weight_cast"), key=lambda use: -(use.bytes or 0.0))
    total = float(np.sum([use.bytes or 0.0 for use in casts])) or 1.0
    ns = float(evidence.calls.ns[conversions.calls].sum()) / evidence.steps.count
    return [
        Place(
            op=use.op,
            module=use.module,
            source=use.source,
            shapes=use.shapes,
            count=float(use.total or use.count),
            ns=ns * (use.bytes or 0.0) / total,
        )
        for use in casts[:PLACES_SHOWN]
    ]
