"""Leave out the copy into another order of the dimensions.

A `permute` or `transpose` is free; the copy comes from the `contiguous()`, `reshape` or `clone` after it, or from a
consumer that asks for the order. Split before permuting (`qkv.unflatten(-1, (3, heads, -1)).unbind(2)`), pass the
strided view to attention and matmuls, or write the producer's output in the order in which it is read.

Predicted: for layout copies (M05), from nothing (the consumer needs the order) to the part of the finding's high end
that is not a memory format of images (see channels-last). For pointwise operations on tensors of different orders
(M09), from nothing (an operand has to be transposed in each step) to the high end.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.detect.copies import LayoutConversions, reordered
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import said, where

NAME = "keep-order"
NUMERICS = "none"
CODE = """
q, k, v = qkv(x).unflatten(-1, (3, heads, -1)).unbind(2)  # views: [B, S, H, D] each
q, k, v = (one.transpose(1, 2) for one in (q, k, v))  # no contiguous(): attention takes the strides
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """From nothing to all copies into an order that is not a memory format of images."""
    if found.finding.code == "M09":
        advice = "give the operands one order: transpose a constant once, or let the producer write the other order"
        how = said(advice, where(found.finding))
        return of_claim(
            evidence, found, how, "high: no operand has to be transposed within the step", least=0.0, better=True
        )
    if found.finding.code != "M05":
        return None
    seen = reordered(evidence)
    share = 1 - seen.image_share(evidence)
    if share <= 0:
        return None
    advice = "keep images in the model's order: an operation in between returns them as [N, C, H, W]"
    if len(seen.others):
        advice = f"pass on the permuted view{_of(evidence, seen)}: split before permute, no contiguous()"
    how = said(advice, where(found.finding))
    return of_claim(evidence, found, how, "high: every consumer takes the view's strides", least=0.0, most=share)


def _of(evidence: Evidence, seen: LayoutConversions) -> str:
    """The source of the copy that takes longest: " of [64, 197, 3, 12, 64]"; empty where there is none."""
    if not len(seen.others):
        return ""
    heaviest = int(seen.others[int(np.argmax(evidence.calls.ns[seen.others]))])
    return f" of {list(tensors(evidence.group_of(heaviest).call)[1].shape)}"
