"""Copies that only change the order in memory: `contiguous()`, `clone()`, and layout conversions around convolutions.

A convolution in 16 bit runs on tensors with the channels innermost (NHWC). Given the usual NCHW, the library converts
each input, weight and gradient, runs, and converts the result back. A `transpose` or `permute` is free until something
needs another order in memory: then it is a copy at a part of the bandwidth.

## How it is recognised

- Kernels that convert a layout (nchwToNhwc and the like) within the calls of convolutions.
- Copies on the device between tensors of one shape and one type whose dimensions have a different order in memory (by
  their strides). A copy into a slice keeps the order and does not count.
- On a CPU, convolutions on NCHW images of more than four channels: the library (oneDNN) converts them inside the call,
  where no separate kernel shows it.

Copies of materialised attention are M02's; dtype conversions are M04's.

## What it costs

    cost (low)  = the layout conversions, except those of images: with channels last everywhere they go away
    cost (high) = the layout conversions + the copies, of which some consumer may need one
                      + on a CPU, what convolutions on NCHW take above their floors, at most 4.2 ns an element

On that CPU (torch 2.13, one thread of an AMD EPYC) ten layers took 10 to 70 % less with channels last, forward and
backward, in float32 and bfloat16, dense, grouped and depthwise. In 29 such measurements none saved more than 4.1 ns for
each element that the convolution reads and writes. What a call takes beyond that has another cause, such as oneDNN's
setup for a new shape. Small convolutions are as fast either way.

Both are capped at W - host (step time minus host time): only time in which the step waits for the device can be saved.

## What helps

- `model.to(memory_format=torch.channels_last)`, and the input as well, where the copies are between NCHW and NHWC. If
  the convolutions' weights have that order already, an operation in between returns the other one.
- Views in a form that the consumer accepts: an `einsum` or a matmul on the transposed view, attention on [B, S, H, D]
  strides; `reshape` only where the order fits.

Grouped convolutions can be slower with channels last (pytorch#34977), and an operation in between that returns NCHW
brings the conversions back.

## Sick

```python
model = torchvision.models.resnet50().cuda()
with torch.autocast("cuda", torch.bfloat16):
    y = model(images)  # [N, C, H, W]
```

## Healthy

```python
model = model.to(memory_format=torch.channels_last)
y = model(images.to(memory_format=torch.channels_last))
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.copies import LayoutConversions, over_images, reordered
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import about_calls, by_signature, bytes_of, certainty_of, of_step, places, unable
from gobrrr.model.diagnosis import NotChecked

CODE = "M05"
TITLE = "layout copies"
TITLE_OUTSIDE = "convolutions on channels-first (NCHW) images"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Layout converters of convolutions, and copies into another order of the dimensions."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    layouts = reordered(evidence)
    turned, converting = layouts.turned, layouts.converting
    copies = np.concatenate([layouts.images, layouts.others])
    calls = np.concatenate([turned, copies, layouts.outside])
    if not len(calls):
        return None
    count, copying = evidence.steps.count, evidence.calls.ns[copies]
    high = np.concatenate([converting, copying, layouts.above])
    low = np.zeros(len(calls))
    low[: len(turned)] = np.where(over_images(evidence, turned), 0.0, converting)
    facts = _outside(evidence, layouts)
    if len(turned):
        facts.append(
            f"layout conversions inside {units.a_step(len(turned) / count, 'convolution')}: "
            f"{of_step(evidence, float(converting.sum()) / count)}; those convolutions take "
            f"{units.duration(float(evidence.calls.ns[turned].sum()) / count)} in all"
        )
        images = float(converting[over_images(evidence, turned)].sum()) / count
        facts += [f"{units.duration(images)} of that are the first layer's, over images"] if images else []
    if len(copies):
        facts.append(
            f"{units.a_step(len(copies) / count, 'copy')} into another order of the dimensions: "
            f"{units.duration(float(copying.sum()) / count)} for "
            f"{units.bytes_(bytes_of(evidence, copies.tolist()) / count)}"
        )
    heavy = float(converting.sum()) + float(layouts.above.sum()) >= float(copying.sum())
    return about_calls(
        evidence,
        CODE,
        TITLE_OUTSIDE if float(layouts.above.sum()) > float(converting.sum()) + float(copying.sum()) else TITLE,
        (calls, low, high),
        where=places(evidence, by_signature(evidence, np.union1d(turned, layouts.outside) if heavy else copies)),
        gone=copies,
        certainty=certainty_of(evidence, "high" if heavy and len(turned) else "medium"),
        treatments=_treatments(layouts),
        facts=facts,
    )


def _outside(evidence: Evidence, layouts: LayoutConversions) -> list[str]:
    if not len(layouts.outside):
        return []
    count, ns = evidence.steps.count, float(evidence.calls.ns[layouts.outside].sum())
    return [
        f"{units.a_step(len(layouts.outside) / count, 'convolution')} on channels-first (NCHW) images: "
        f"{units.duration(ns / count)}, of which the layout costs at most "
        f"{units.duration(float(layouts.above.sum()) / count)}"
    ]


def _treatments(layouts: LayoutConversions) -> list[str]:
    """The order of images can be changed for the whole model; any other order only in the copy's own lines."""
    images = (len(layouts.turned) or len(layouts.images) or len(layouts.outside)) and not layouts.already
    copies = len(layouts.others) or (layouts.already and len(layouts.images))
    return [*(["channels-last"] if images else []), *(["keep-order", "compile"] if copies else [])]
