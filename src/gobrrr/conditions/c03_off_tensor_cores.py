"""A contraction that runs on the vector units, in a model that otherwise runs on the tensor cores.

In bfloat16 an H100's tensor cores do 989 TFLOP/s, its vector units 67. A contraction with 5 % of the model's FLOP that
falls back to them takes as long as all the others. Two causes: an operand was widened to float32 (a norm or a softmax
before it, the math form of attention, `.float()` in a head), or no tensor-core kernel takes the shape.

## How it is recognised

At least half of the contractions' FLOP run in a 16-bit or 8-bit type. The finding is about the others: contractions in
float32 or 16 bit whose kernel's name says that the vector units ran them (ffma, simt, sgemm), and which reach at least
a fifth of the float32 peak. A slower call has another bottleneck. Where the kernel's name does not tell whether TF32
was on, nothing is claimed. A model that runs in float32 as a whole is C01.

## What it costs

With t a call's time, P the peaks and B the bandwidth, each call reaching the same share of the new peak as of the old:

    cost (low)  = sum of t - max(t * P_float32 / P_tf32, bytes / B)
    cost (high) = sum of t - max(t * P_float32 / P_16bit, bytes / 2 / B)

Both are capped at W - host (step time minus host time): only time in which the step waits for the device can be saved.
Contractions of materialised attention are M02's.

## What helps

- Cast the operands to the model's type before the contraction; keep float32 for sums, norms and softmax.
- `torch.set_float32_matmul_precision("high")` where float32's range is needed: TF32.
- For attention in its math form: a mask that the fused kernels accept, or no mask.

It gives nothing in a launch-bound step.

## Sick

```python
model = model.to(torch.bfloat16)
scores = model.features(x).float() @ model.table.float().T  # one float32 matmul
```

## Healthy

```python
scores = (model.features(x) @ model.table.T).float()
```
"""

from __future__ import annotations

import re

import numpy as np

from gobrrr import units
from gobrrr.analysis.events.ratios import rate
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.savings.contractions import MATRIX_UNIT_TYPES, low_precision, off_matrix_units, peak_of, saved_at
from gobrrr.conditions.c01_fp32_matmul import LEAST_OF_PEAK
from gobrrr.conditions.common import about_calls, matrix_flop_of, of_step, unable
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.events import I8

CODE = "C03"
TITLE = "contractions off the tensor cores in a 16-bit model"

VECTOR_KERNEL = re.compile(r"simt|sgemm|ffma|f32f32_f32f32", re.IGNORECASE)
"""Names of kernels that multiply on the vector units."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Contractions on the vector units while most of the model's FLOP run in 16 or 8 bit."""
    if not evidence.device.tensor_cores:
        return None
    missing = unable(CODE, evidence)
    if missing:
        return missing
    now, tf32, half = (peak_of(evidence, *names) for names in (("float32",), ("tf32",), ("bfloat16", "float16")))
    bulk = low_precision(evidence)
    if bulk is None or now is None or half is None:
        return None
    calls = vector_calls(evidence, now)
    if not len(calls):
        return None
    low = saved_at(evidence, calls, now, tf32)
    high = np.maximum(saved_at(evidence, calls, now, half, 0.5), low)
    count, total = evidence.steps.count, float(evidence.calls.ns[calls].sum())
    flop = matrix_flop_of(evidence, calls.tolist())
    kernels = evidence.group_of(int(calls[np.argmax(evidence.calls.ns[calls])])).call.kernels
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        treatments=["bf16-autocast", *(["tf32"] if tf32 else [])],
        facts=[
            f"{units.percent(bulk[1])} of the contractions' FLOP run in {bulk[0]}",
            f"{units.a_step(len(calls) / count, 'contraction')} on the vector units: "
            f"{of_step(evidence, total / count)}, "
            f"{units.flop(flop / count)} at {units.rate(rate(flop, total), 'FLOP')}",
            f"the heaviest one's kernel: {next((name for name in kernels if _vector(name)), kernels[-1])}",
            f"peaks: float32 {units.rate(now, 'FLOP')}, TF32 {units.rate(tf32, 'FLOP')}, "
            f"16 bit {units.rate(half, 'FLOP')}",
        ],
    )


def vector_calls(evidence: Evidence, peak: float) -> I8:
    """Contractions on the vector units that reach at least `LEAST_OF_PEAK` of `peak`, the float32 one."""
    calls = evidence.calls_where(np.array([_on_vector_units(group) for group in evidence.priced.groups], dtype=bool))
    flop = np.array([evidence.group_of(call).work.matrix_flop or 0.0 for call in calls.tolist()])
    return calls[flop / peak * 1e9 >= LEAST_OF_PEAK * evidence.calls.ns[calls]]


def _on_vector_units(group: CallGroup) -> bool:
    work = group.work
    if work.matrix_dtype in MATRIX_UNIT_TYPES:
        return bool(work.matrix_flop) and any(_vector(name) for name in group.call.kernels)
    return off_matrix_units(group)


def _vector(kernel: str) -> bool:
    return bool(VECTOR_KERNEL.search(kernel)) and "tensorop" not in kernel
