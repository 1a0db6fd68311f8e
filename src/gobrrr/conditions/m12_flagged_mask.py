"""An attention mask is passed as a tensor where a flag says the same: attention computes scores that the mask hides.

A fused attention with `is_causal=True` skips the blocks that are hidden, half of them. Given the same mask as a tensor
it computes every block and reads the mask for each head. The fastest kernels take no mask tensor at all, so a slower
one runs (unslothai/unsloth#11102: 5.6 to 8.8 times slower, with heads of 256).

## How it is recognised

A live run reads the masks that are passed to fused attention. It reports a mask that hides nothing, or exactly what
`is_causal=True` hides, and adds no number to the scores. A trace has no values. Attention without a fused kernel is
M02's.

## What it costs

With t the time of these calls, forward and backward, s the share of the scores that is not hidden, and f their FLOPs:

    cost (high) = t - s * f at the matrix peak
    cost (low)  = t - s * f at 15 % of it (M02)

On a CPU the same kernel runs with and without a mask: the high end is (1 - s) * t, the low end 0. The cost is capped at
W - host (step time minus host time): only time in which the step waits for the device can be saved.

## What helps

- `is_causal=True` instead of the mask; no mask where it hides nothing.
- Combined with padding: sequences of one length, or `flex_attention`.

## Sick

```python
mask = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()
y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
```

## Healthy

```python
y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.flagged_masks import FlaggedMask, flagged_masks
from gobrrr.analysis.findings.claims import F8, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.contractions import peak_of
from gobrrr.conditions.common import PLACES_SHOWN, about_calls, needs_live
from gobrrr.conditions.m02_attention import FUSED_SHARE
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "M12"
TITLE = "an attention mask tensor that a flag could replace"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Masks in fused attention that hide nothing, or what `is_causal=True` hides."""
    if evidence.profile.uses is None:
        return needs_live(CODE)
    masks = flagged_masks(evidence)
    if not masks:
        return None
    calls = np.concatenate([flagged.calls for flagged in masks])
    low, high = (np.concatenate([_gain(evidence, flagged, fastest=end) for flagged in masks]) for end in (False, True))
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        where=[_place(evidence, flagged) for flagged in masks[:PLACES_SHOWN]],
        certainty="high",
        treatments=["sdpa"],
        facts=[_fact(evidence, flagged) for flagged in masks[:PLACES_SHOWN]],
    )


def _gain(evidence: Evidence, flagged: FlaggedMask, *, fastest: bool) -> F8:
    """Ns that each call saves without the mask."""
    ns = evidence.calls.ns[flagged.calls]
    if not evidence.device.fused_attention:
        return ns * (1.0 - flagged.share) * fastest
    then = np.array([_then(evidence, call, flagged.share) for call in flagged.calls.tolist()])
    saved: F8 = np.maximum(ns - then / (1.0 if fastest else FUSED_SHARE), 0.0)
    return saved


def _then(evidence: Evidence, call: int, share: float) -> float:
    """Ns of the scores that are not hidden, at the matrix peak; all of the call's time if the peak is not known."""
    work = evidence.group_of(call).work
    peak = peak_of(evidence, work.matrix_dtype or "")
    if peak is None or not work.matrix_flop:
        return float(evidence.calls.ns[call])
    return share * work.matrix_flop / peak * 1e9


def _place(evidence: Evidence, flagged: FlaggedMask) -> Place:
    ns = float(evidence.calls.ns[flagged.calls].sum()) / evidence.steps.count
    return Place(
        op=flagged.use.op, module=flagged.use.module, source=flagged.use.source, count=float(flagged.use.count), ns=ns
    )


def _fact(evidence: Evidence, flagged: FlaggedMask) -> str:
    ns = float(evidence.calls.ns[flagged.calls].sum()) / evidence.steps.count
    hides = "hides nothing" if flagged.share == 1.0 else "hides what is_causal=True hides, and nothing else"
    return f"the mask {flagged.use.shapes} {hides}: attention with it takes {units.duration(ns)} a step"
