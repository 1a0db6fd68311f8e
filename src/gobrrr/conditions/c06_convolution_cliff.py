"""A convolution runs on a direct or generic algorithm and reaches a few percent of what other convolutions reach.

cuDNN picks an algorithm by a heuristic. For some shapes, layouts and types the only match is a kernel that computes the
sum directly. One more image in the batch, or channels last in a grouped convolution, and a layer takes 30 to 60 times
as long (pytorch#128936: 1.19 s in bfloat16 with 64 images, 0.019 s with 63; pytorch#34977: 143 ms in NHWC, 4.1 ms in
NCHW). Each cuDNN version has cliffs of its own. With 9.19 on an H100 these two are gone, but a depthwise 7 x 7 layer in
float32 takes 4.8 ms in channels last, 1.7 ms in NCHW and 0.5 ms in bfloat16 (bench/cases/k01, k04).

## How it is recognised

Convolutions that meet both conditions; each layer is judged on its own:

- The name of their kernel says that it is a direct, generic or explicit algorithm (`conv2d_grouped_direct_kernel`,
  `dgrad2d_grouped_direct_kernel`, `implicit_convolve_sgemm`, `explicit_convolve_sgemm`, `dgrad_engine`, `wgrad_alg0`,
  `naive_conv`).
- They reach less than a fifth of the share of the roof that the step's other convolutions reach together. Where there
  are no others, 30 % is assumed for them.

A depthwise convolution has direct kernels of its own that reach the memory bandwidth: that is its roof, and it is
healthy. Converters between layouts are M05's.

## What it costs

With t a call's time, f its floor and s the share of the roof that the others reach:

    cost (high) = sum of t - f / s
    cost (low)  = sum of t - 2 * f / s

Both are capped at W - host (step time minus host time): only time in which the step waits for the device can be saved.

## What helps

- Another layout for this layer alone: channels last if it is NCHW, contiguous if it is channels last and grouped.
- `torch.backends.cudnn.benchmark = True`: cuDNN times the algorithms once for each shape and keeps the best. It gives
  nothing where this layout and type have no other algorithm, as in the depthwise layer above.
- Another type, or another size: a batch of 63 or 65 instead of 64, a padded image.

## Sick

```python
conv = torch.nn.Conv2d(512, 512, 7, padding=3, groups=512).cuda().to(memory_format=torch.channels_last)
```

## Healthy

```python
conv = torch.nn.Conv2d(512, 512, 7, padding=3, groups=512).cuda()  # contiguous; or in bfloat16
```
"""

from __future__ import annotations

import re

import numpy as np

from gobrrr import units
from gobrrr.analysis.events.calls import NAME_CHARACTERS
from gobrrr.analysis.events.ratios import share as share_of
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.conditions.common import about_calls, certainty_of, of_step, unable
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.events import I8

CODE = "C06"
TITLE = "a convolution on a fallback algorithm"

FALLBACK_KERNELS = re.compile(
    r"grouped_direct|implicit_convolve_sgemm|explicit_convolve_sgemm|[dw]grad_engine|[dw]grad2d_alg|[dw]grad_alg|"
    r"wgrad2d_grouped|dgrad2d_grouped|naive_conv|cudnn::\w+::\w*generic\w*conv|conv\w*_generic",
    re.IGNORECASE,
)
"""Names of cuDNN and MIOpen kernels that convolve directly, or with a matmul on the vector units."""

FALLBACK_SHARE = 0.2
"""A fallback reaches less than this part of the others' share: reported cliffs are 30-fold, an unlucky tile twofold."""

CONVOLUTION_SHARE = 0.3
"""Share of its roof assumed for a convolution if the step has no other to compare with; chosen, not measured."""

OTHER_ALGORITHM_SLOWDOWN = 2.0
"""The low end assumes that another algorithm is this much slower than the other convolutions; chosen, not measured."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Convolutions whose kernel is a fallback by its name, far below the others."""
    if evidence.device.onednn:
        return None  # oneDNN has no such kernels
    missing = unable(CODE, evidence)
    if missing:
        return missing
    every = evidence.calls_where(evidence.groups_where("convolution"))
    by_name = np.array([_fallback(evidence.group_of(call)) for call in every.tolist()], dtype=bool)
    floor, ns = evidence.calls.floor_ns, evidence.calls.ns
    share = _reached(evidence, every[~by_name])
    usual = CONVOLUTION_SHARE if share is None else share
    suspects = every[by_name]
    calls = suspects[floor[suspects] < FALLBACK_SHARE * usual * ns[suspects]]
    if not len(calls):
        return None
    then = floor[calls] / usual
    high, low = np.maximum(ns[calls] - then, 0.0), np.maximum(ns[calls] - OTHER_ALGORITHM_SLOWDOWN * then, 0.0)
    count = evidence.steps.count
    heaviest = evidence.group_of(int(calls[np.argmax(ns[calls])]))
    reach = share_of(float(floor[calls].sum()), float(ns[calls].sum()))
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        certainty=certainty_of(evidence, "medium" if share is None else "high"),
        treatments=["channels-last", "cudnn-benchmark"],
        facts=[
            f"{units.a_step(len(calls) / count, 'convolution')}: "
            f"{of_step(evidence, float(ns[calls].sum()) / count)}, at {units.percent(reach)} of their roof",
            f"the step's other convolutions reach {units.percent(share)} of theirs"
            if share is not None
            else f"the step has no other convolution: {units.percent(CONVOLUTION_SHARE)} of the roof is assumed",
            f"the heaviest one's kernel: {_name(heaviest)[:NAME_CHARACTERS]}",
            *_benchmark(evidence),
        ],
    )


def _fallback(group: CallGroup) -> bool:
    return any(FALLBACK_KERNELS.search(name[:NAME_CHARACTERS]) for name in group.call.kernels)


def _name(group: CallGroup) -> str:
    return next(name for name in group.call.kernels if FALLBACK_KERNELS.search(name[:NAME_CHARACTERS]))


def _reached(evidence: Evidence, calls: I8) -> float | None:
    """Share of their roofs that convolutions reach together; None if none of them is priced."""
    ns, floor = evidence.calls.ns[calls], evidence.calls.floor_ns[calls]
    known = ~np.isnan(floor) & (ns > 0)
    return min(float(floor[known].sum() / ns[known].sum()), 1.0) if known.any() else None


def _benchmark(evidence: Evidence) -> list[str]:
    """Whether cuDNN times its algorithms, if a live run saw the setting."""
    switches = evidence.profile.switches
    if switches is None:
        return []
    state = "on: the choice is the best of what it tried" if switches.cudnn_benchmark else "off"
    return [f"torch.backends.cudnn.benchmark is {state}"]
