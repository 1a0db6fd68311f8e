"""Use scaled_dot_product_attention, which never writes the scores.

Flash, cuDNN or memory-efficient kernels compute softmax(q k^T) v block by block on the chip: the passes over the S
x S' scores vanish, the matmuls run at the matrix units' rate, and memory falls by the scores that the backward
would keep.

Replayed: what the finding claims, from its low to its high end: the passes over the scores at the low end, the
matmuls' distance from their peak on top at the high end, both only as far as the device is what the step waits for.
In a launch-bound step that is nothing.

Under `torch.compile` a mask that is a tensor (a library builds one where it can't look at the values while tracing)
may decompose the call into the math form, in float32: pass `is_causal` or no mask, or restrict the call with
`sdpa_kernel` to the fused kernels, so that it says why they do not take it.

A dense mask excludes flash attention; head sizes over 256, dropout and float32 restrict the choice of kernels.
Dropout draws other masks. `torch.nn.attention.sdpa_kernel` shows and sets which kernel runs.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "sdpa"
NUMERICS = "rounding"
CODE = """
y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the materialised scores cost on the wall."""
    finding = found.finding
    if finding.code != "M02":
        return None
    how = "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=...)"
    return of_claim(evidence, found, how, "a fused kernel takes the mask and the head size")
