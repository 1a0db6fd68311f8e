"""Normalization takes longer than its bytes need: it is written out of pointwise calls, or far below the bandwidth.

A norm reads a tensor and writes it: two passes. Written as `x.pow(2).mean(-1)`, `rsqrt`, two multiplications and two
conversions it makes eight. The framework's own kernels can be slow as well: batch norm over [N, C, H, W] in 16 bit
walks its channels with large strides, and reached a tenth of the bandwidth in the shipped held-out trace.

## How it is recognised

- Around each `rsqrt` that follows a mean, sum or variance: the pointwise calls, conversions and reductions on the same
  tensor or on its rows, up to six on each side.
- Calls of the framework's normalizations, forward and backward, of at least 10 us.

Kernels written by a compiler are not examined. An addition of the same size is a residual, and M01's.

## What it costs

With t the time of a norm's calls, b the bytes that one kernel moves (a written-out norm: input read once, output
written once; the framework's own: as counted for it) and B the bandwidth:

    cost (low)  = sum of t - b / (0.45 * B)
    cost (high) = sum of t - b / B

Compiled norm kernels reach 47 % of the bandwidth or more in the shipped traces. None of those is a batch norm, so batch
norms add nothing to the low end. On a CPU neither was measured: only written-out norms count there, the low end is 0,
and B is the rate at the roofs of their calls, since CPU caches hold whole activations. Both are capped at W - host
(step time minus host time): only time in which the step waits for the device can be saved.

## What helps

- `torch.nn.functional.rms_norm` or `torch.compile` for a norm that is written out.
- `torch.compile` for the framework's own: it fuses a residual and a conversion into the norm.
- For batch norm: `channels_last` where the images are NCHW, otherwise `torch.compile`, which fuses the activation.

It gives nothing in a launch-bound step and little for small rows.

## Sick

```python
h = x.float()
h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
y = h.to(x.dtype) * weight
```

## Healthy

```python
y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.norms import WrittenNorm, batch_norms, outside, own_norms, written_norms
from gobrrr.analysis.events.ratios import rate
from gobrrr.analysis.findings.claims import F8, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import about_calls, by_signature, bytes_of, certainty_of, of_step, short_op, unable
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.events import I8

CODE = "M03"
TITLE = "normalization traffic"

COMPILED_NORM_SHARE = 0.45
"""The least share of the bandwidth of compiled norm kernels: 0.47 and more in the shipped traces."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Written-out norms and the framework's own, compared with what one kernel would need."""
    missing = unable(CODE, evidence)
    memory = evidence.machine.memory_bytes_per_s if evidence.machine else None
    if missing or memory is None:
        return missing
    # only on GPUs a fused kernel was measured to be faster than the framework's own
    written = written_norms(evidence)
    own = own_norms(evidence) if evidence.device.bytes_alone else np.empty(0, dtype=np.int64)
    calls = np.array([call for norm in written for call in norm.calls] + own.tolist(), dtype=np.int64)
    if not len(calls):
        return None
    least = np.concatenate([_least_of_written(evidence, written, memory.value), _least(evidence, own, memory.value)])
    ns = evidence.calls.ns[calls]
    low, high = np.maximum(ns - least / COMPILED_NORM_SHARE, 0.0), np.maximum(ns - least, 0.0)
    low[len(calls) - len(own) :][batch_norms(evidence, own)] = 0.0
    gone = np.array([call for norm in written for call in norm.calls[1:]], dtype=np.int64)
    if not evidence.device.bytes_alone:
        low[:] = 0.0  # the bandwidth of a compiled norm on a CPU was not measured
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        gone=gone,
        certainty=certainty_of(evidence, "medium"),
        treatments=_treatments(evidence, written, own),
        facts=[*_facts_written(evidence, written), *_facts_own(evidence, own, memory.value)],
    )


def _least(evidence: Evidence, calls: I8, bandwidth: float) -> F8:
    """Nanoseconds that each call's bytes need at the bandwidth; no less than its floor."""
    bytes_ = np.array([evidence.group_of(call).work.bytes or 0.0 for call in calls.tolist()])
    return np.maximum(bytes_ / bandwidth * 1e9, evidence.calls.floor_ns[calls])


def _least_of_written(evidence: Evidence, written: list[WrittenNorm], bandwidth: float) -> F8:
    """The least time of each written-out norm, distributed over its calls by their times."""
    parts = [np.empty(0)]
    for norm in written:
        ns = evidence.calls.ns[list(norm.calls)]
        rate = bandwidth / 1e9 if evidence.device.bytes_alone else _rate_of(evidence, norm)
        parts.append(ns / max(float(ns.sum()), 1.0) * norm.bytes / rate)
    return np.concatenate(parts)


def _rate_of(evidence: Evidence, norm: WrittenNorm) -> float:
    """Bytes a nanosecond at the roofs of a written-out norm's calls: a CPU's caches hold whole activations."""
    moved = bytes_of(evidence, norm.calls)
    floor = float(evidence.calls.floor_ns[list(norm.calls)].sum())
    return moved / floor if moved and floor > 0 else float("inf")


def _facts_written(evidence: Evidence, written: list[WrittenNorm]) -> list[str]:
    if not written:
        return []
    count = evidence.steps.count
    ns = [float(evidence.calls.ns[list(norm.calls)].sum()) for norm in written]
    heaviest = written[int(np.argmax(ns))]
    operations = ", ".join(short_op(evidence.group_of(call).call.name) for call in heaviest.calls)
    return [
        f"{units.a_step(len(written) / count, 'norm')} written out of pointwise calls: "
        f"{of_step(evidence, sum(ns) / count)}",
        f"the heaviest ({operations}): {units.duration(max(ns))} for "
        f"{units.bytes_(bytes_of(evidence, heaviest.calls))}; one kernel moves {units.bytes_(heaviest.bytes)}",
    ]


def _facts_own(evidence: Evidence, own: I8, bandwidth: float) -> list[str]:
    if not len(own):
        return []
    count, ns = evidence.steps.count, evidence.calls.ns
    facts = [
        f"{units.a_step(len(own) / count, 'call')} of the framework's own norms: "
        f"{units.duration(float(ns[own].sum()) / count)}, "
        f"{units.duration(float(_least(evidence, own, bandwidth).sum()) / count)} at the bandwidth"
    ]
    for calls in sorted(by_signature(evidence, own), key=lambda alike: -float(ns[alike].sum()))[:2]:
        group = evidence.group_of(int(calls[0]))
        bytes_, mean = group.work.bytes or 0.0, float(ns[calls].mean())
        facts.append(
            f"{short_op(group.call.name)}: {units.a_step(len(calls) / count)}, {units.duration(mean)} each for "
            f"{units.bytes_(bytes_)}: {units.rate(rate(bytes_, mean))} of {units.rate(bandwidth)}"
        )
    return facts


def _treatments(evidence: Evidence, written: list[WrittenNorm], own: I8) -> list[str]:
    """A fused row-wise norm for all but batch norms; for those channels last if the layout is the cause, or compile."""
    batch = batch_norms(evidence, own)
    rows = len(written) > 0 or not batch.all()
    images = outside(evidence, own)
    return [
        *(["fused-norm"] if rows else []),
        *(["channels-last"] if images.any() else []),
        *(["compile"] if rows or (batch & ~images).any() else []),
    ]
