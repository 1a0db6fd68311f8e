"""Matmuls in full float32 run on the vector units; the tensor cores, many times faster, stay idle.

PyTorch's default precision for float32 matmuls is "highest": no TF32. On an H100 that is 67 TFLOP/s, against 495 in
TF32 and 989 in bfloat16.

## How it is recognised

Contractions (matmul, convolution) that meet all of these:

- Their kernels work in float32, and the machine's matrix units take TF32 or a 16-bit type.
- They are compute-bound and reach at least a fifth of the float32 peak. A call far below that peak has another
  bottleneck, and a higher peak does not help it.
- The kernel's name says that TF32 is off. Where the name does not tell (memory-efficient attention, nvjet), nothing is
  claimed.

Float64 and matrix-vector products (memory-bound) do not count. A float32 contraction in a model that mostly runs in 16
bit is C03.

On a CPU (live runs only) the finding needs a measured 16-bit peak above the float32 peak. CPUs with AMX or AVX-512
bfloat16 have one; on others bfloat16 is slower. Each call's saving is then reduced by the dispatch of the cast before
it.

## What it costs

With t a call's time, P the peaks and B the bandwidth, each call reaching the same share of the new peak as of the old:

    cost (low)  = sum of t - max(t * P_float32 / P_tf32, bytes / B)
    cost (high) = sum of t - max(t * P_float32 / P_bfloat16, bytes / 2 / B)

Both are capped at W - host (step time minus host time): only time in which the step waits for the device can be saved.

## What helps

- `torch.set_float32_matmul_precision("high")`: TF32, about 3e-4 relative error a matmul, no other change.
- `torch.autocast("cuda", torch.bfloat16)` for training, `model.to(torch.bfloat16)` for inference: twice
  that rate and half the bytes.

It gives little where matmuls are a small share of the step, and nothing where the step is launch-bound: one report
measured +1.65 % end to end from TF32.

## Sick

```python
model = model.cuda()  # float32, and the precision left at "highest"
loss = model(x).sum()
```

## Healthy

```python
torch.set_float32_matmul_precision("high")
with torch.autocast("cuda", torch.bfloat16):
    loss = model(x).sum()
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.events.ratios import rate
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.savings.contractions import compute_bound, low_precision, off_matrix_units, peak_of, saved_at
from gobrrr.conditions.common import about_calls, certainty_of, matrix_flop_of, of_step, unable
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.events import I8

CODE = "C01"
TITLE = "float32 matmuls off the tensor cores"
TITLE_CPU = "float32 matmuls on a processor that is faster in 16 bit"

LEAST_OF_PEAK = 0.2
"""The least share of the float32 peak that a call reaches if that peak is its bottleneck; chosen, not measured."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Compute-bound float32 contractions that reach at least `LEAST_OF_PEAK` of the vector units' peak."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    now, tf32, half = (peak_of(evidence, *names) for names in (("float32",), ("tf32",), ("bfloat16", "float16")))
    if now is None or (tf32 is None and half is None) or low_precision(evidence) is not None:
        return None
    if not evidence.device.narrow_is_faster and (half is None or half <= now):
        return None
    calls = slow_calls(evidence)
    low = saved_at(evidence, calls, now, tf32)
    high = np.maximum(saved_at(evidence, calls, now, half, 0.5), low)
    if not evidence.device.asynchronous:  # the cast in front of each is dispatched by the same processor
        high = np.maximum(high - path_of(evidence).host_per_launch, 0.0)
    ns, count = evidence.calls.ns[calls], evidence.steps.count
    flop = matrix_flop_of(evidence, calls.tolist())
    total = float(ns.sum())
    if not total:
        return None
    return about_calls(
        evidence,
        CODE,
        TITLE if evidence.device.tensor_cores else TITLE_CPU,
        (calls, low, high),
        certainty=certainty_of(evidence, "high" if evidence.device.narrow_is_faster else "medium"),
        treatments=[*(["bf16-autocast"] if half else []), *(["tf32"] if tf32 else [])],
        facts=[
            f"{units.a_step(len(calls) / count, 'float32 contraction')}: {of_step(evidence, total / count)}",
            f"they do {units.flop(flop / count)} a step at {units.rate(rate(flop, total), 'FLOP')}; "
            f"the float32 peak is {units.rate(now, 'FLOP')}",
            *_other_peaks(tf32, half, (total - float(low.sum())) / count, (total - float(high.sum())) / count),
        ],
    )


def _other_peaks(tf32: float | None, half: float | None, with_tf32: float, with_half: float) -> list[str]:
    """The faster peaks, and the ns of a step that the calls would take at the same share of them; a CPU has no TF32."""
    if tf32 is None:
        return [
            f"the 16-bit peak is {units.rate(half, 'FLOP')}: at the same share of it they would take "
            f"{units.duration(with_half)} a step"
        ]
    return [
        f"peaks of the matrix units: TF32 {units.rate(tf32, 'FLOP')}, 16 bit {units.rate(half, 'FLOP')}",
        f"at the same share of those peaks they would take {units.duration(with_tf32)} a step in TF32, "
        f"{units.duration(with_half)} in 16 bit",
    ]


def slow_calls(evidence: Evidence) -> I8:
    """Calls of float32 contractions whose bottleneck is the vector units' peak."""
    calls = evidence.calls_where(
        np.array([off_matrix_units(group) and compute_bound(group) for group in evidence.priced.groups], dtype=bool)
    )
    floor, ns = evidence.calls.floor_ns[calls], evidence.calls.ns[calls]
    return calls[floor >= LEAST_OF_PEAK * ns]
