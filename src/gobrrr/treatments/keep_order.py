"""Leave out the copy into another order of the dimensions.

A `permute` or `transpose` is free; the copy comes with the `contiguous()`, `reshape` or `clone` behind it, or with a
consumer that asks for the order. Split before permuting (`qkv.unflatten(-1, (3, heads, -1)).unbind(2)`), give attention
and matmuls the view with its strides, or write the producer's output in the order in which it is read.

Replayed: of layout copies (M05) between nothing, where the consumer needs the order, and the part of the finding's
high end that is not the order of images (see channels-last). Of pointwise operations on tensors of different orders
(M09) between nothing, where an operand has to be turned in each step, and all of the high end.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.detect.copies import Reordered, reordered
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.treatments.framework.wording import said, where

NAME = "keep-order"
NUMERICS = "none"
CODE = """
q, k, v = qkv(x).unflatten(-1, (3, heads, -1)).unbind(2)  # views: [B, S, H, D] each
q, k, v = (one.transpose(1, 2) for one in (q, k, v))  # no contiguous(): attention takes the strides
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """Nothing to all of the copies into an order that is not that of images."""
    if found.finding.code == "M09":
        told = "hand the operands over in one order: turn a constant once, let the producer write the other order"
        how = said(told, where(found.finding))
        return of_claim(evidence, found, how, "high: nothing has to be turned within the step", least=0.0, better=True)
    if found.finding.code != "M05":
        return None
    seen = reordered(evidence)
    share = 1 - seen.image_share(evidence)
    if share <= 0:
        return None
    told = "keep images in the model's order: an operation in between returns them as [N, C, H, W]"
    if len(seen.others):
        told = f"hand on the permuted view{_of(evidence, seen)}: split before permute, no contiguous()"
    how = said(told, where(found.finding))
    return of_claim(evidence, found, how, "high: every consumer takes the view's strides", least=0.0, most=share)


def _of(evidence: Evidence, seen: Reordered) -> str:
    """The source of the copy that takes longest: " of [64, 197, 3, 12, 64]"; empty where there is none."""
    if not len(seen.others):
        return ""
    heaviest = int(seen.others[int(np.argmax(evidence.calls.ns[seen.others]))])
    return f" of {list(tensors(evidence.group_of(heaviest).call)[1].shape)}"
