"""Conversions between float32 and 16 bit that only read a tensor and write it again.

Autocast converts each weight before its matmul, in every step, and activations wherever an operation that runs in 16
bit meets one that runs in float32. Norms and losses that run in float32 convert in and out. Each conversion is a kernel
of its own that moves 6 bytes an element.

## How it is recognised

Copies on the device from one floating type to another, same shape. Conversions that are part of materialised attention
(M02) or of a written-out norm (M03) are counted there. A conversion that a compiler fused into another kernel costs
nothing.

## What it costs

    cost (low)  = 0: operations that need float32 need the conversion
    cost (high) = all conversions + idle time of the device that launching them causes

Weight conversions in inference are M06's: all of them can go. In training a weight is converted at least once after
each optimizer step, unless the optimizer writes the 16-bit copy itself. The first term counts only while the step waits
for the device (W - host), the second only while the device idles: on small layers a conversion costs its dispatch, not
its bytes.

## What helps

- Training: parameters in bfloat16 and float32 master weights in the optimizer, so that nothing is cast in the step.
- `torch.compile`: conversions of activations become part of the kernels around them.
- A CUDA graph, where launching them costs more than the conversions themselves.
- No autocast, where its conversions cost more than float32 matmuls would (seen in a live run): small layers.

## Sick

```python
with torch.autocast("cuda", torch.bfloat16):  # a weight is cast once a step, activations wherever the lists meet
    loss = model(x).softmax(-1).log().mean()
```

## Healthy

```python
model = model.to(torch.bfloat16)  # with float32 copies in the optimizer
loss = model(x.to(torch.bfloat16)).float().log_softmax(-1).mean()
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.copies import casts, weight_casts
from gobrrr.analysis.detect.weights import repeated_casts
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.autocasting import worth_leaving_out
from gobrrr.conditions.common import by_signature, bytes_of, certainty_of, finding, of_step, places, unable
from gobrrr.conditions.vanishing import vanishing
from gobrrr.model.diagnosis import NotChecked

CODE = "M04"
TITLE = "conversions between dtypes"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Copies from one floating type to another."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    calls = casts(evidence)
    if not evidence.training:
        calls = calls[~np.isin(calls, repeated_casts(evidence).calls)]
    if not len(calls):
        return None
    ns, count = evidence.calls.ns[calls], evidence.steps.count
    weights = weight_casts(evidence, calls)
    gone = vanishing(evidence, calls, np.zeros(len(ns)), ns)
    moved = bytes_of(evidence, calls.tolist()) / count
    facts = [
        f"{units.a_step(len(calls) / count, 'conversion')}: {of_step(evidence, float(ns.sum()) / count)} for "
        f"{units.bytes_(moved)}, and {units.duration(gone.idle_ns)} to launch them"
    ]
    if weights.any():
        facts.append(
            f"{units.count(int(weights.sum()) / count)} of them convert weights: "
            f"{units.duration(float(ns[weights].sum()) / count)}"
        )
    small = worth_leaving_out(evidence, float(ns.sum()) + gone.idle_ns * count)
    launched = gone.idle_ns > gone.device_ns and evidence.device.captures
    return finding(
        evidence,
        CODE,
        TITLE,
        where=places(evidence, by_signature(evidence, calls)),
        at_stake=gone.at_stake,
        claim=gone.claim,
        gone=calls,
        certainty=certainty_of(evidence, "medium"),
        treatments=[
            *(["no-autocast"] if small else []),
            *(["cast-once"] if weights.any() else []),
            "compile",
            *(["cuda-graph"] if launched else []),
        ],
        facts=facts,
    )
