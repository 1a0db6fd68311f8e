"""Matmuls in full float32: the vector units do them while the tensor cores, many times faster, stand idle.

PyTorch's default precision for float32 matmuls is "highest": no TF32. On an H100 that is 67 TFLOP/s where TF32 has
495 and bfloat16 989.

## How it is recognised

Contractions (matmul, convolution) whose kernels work in float32, compute-bound, on a machine whose matrix units
take TF32 or a 16-bit type, and that reach at least a fifth of the float32 peak: a call far below its roof is held
up by something else, and a higher roof does not help it. Not float64, not matrix-vector products (memory-bound),
not float32 matmuls that run as TF32 (then the kernel's name says so).

## What it costs

With t a call's time, P the peaks and B the bandwidth, each call at the same share of its peak as now:

    at stake (low)  = sum of t - max(t * P_float32 / P_tf32, bytes / B)
    at stake (high) = sum of t - max(t * P_float32 / P_bfloat16, bytes / 2 / B)

Both count only as far as the device is what the step waits for: W - host bounds them.

## What helps

- `torch.set_float32_matmul_precision("high")`: TF32, about 3e-4 relative error a matmul, no other change.
- `torch.autocast("cuda", torch.bfloat16)` for training, `model.to(torch.bfloat16)` for inference: twice
  that rate and half the bytes.

It gives little where the matmuls are a small share of the step, and nothing where the step is launch-bound: one
report measured +1.65 % end to end from TF32.

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
from numpy.typing import NDArray

from gobrrr import units
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.path import step_saving
from gobrrr.analysis.price import Group
from gobrrr.analysis.roofline import matrix_peak
from gobrrr.conditions.common import by_signature, certainty_of, finding, places, unable
from gobrrr.model.diagnosis import Finding, NotChecked
from gobrrr.model.events import I8
from gobrrr.model.machine import Machine

CODE = "C01"
TITLE = "float32 matmuls off the tensor cores"

LEAST_OF_PEAK = 0.2
"""A call that reaches less of the float32 peak than this is not held up by that peak."""


def check(evidence: Evidence) -> Finding | NotChecked | None:
    """Compute-bound float32 contractions at a fair share of the vector units' peak."""
    missing = unable(CODE, evidence)
    machine = evidence.machine
    if missing or machine is None:
        return missing
    now, tf32, half = (_peak(machine, *names) for names in (("float32",), ("tf32",), ("bfloat16", "float16")))
    if now is None or (tf32 is None and half is None):
        return None
    calls = slow_calls(evidence)
    low = _saved(evidence, calls, now, tf32, 1.0)
    high = np.maximum(_saved(evidence, calls, now, half, 0.5), low)
    ns, count = evidence.calls.ns[calls], evidence.steps.count
    flop = sum(evidence.group_of(call).work.matrix_flop or 0.0 for call in calls.tolist())
    total = float(ns.sum())
    if not total:
        return None
    return finding(
        evidence,
        CODE,
        TITLE,
        where=places(evidence, by_signature(evidence, calls)),
        at_stake=step_saving(evidence, calls, low, high),
        certainty=certainty_of(evidence),
        treatments=[*(["bf16-autocast"] if half else []), *(["tf32"] if tf32 else [])],
        facts=[
            f"{units.count(len(calls) / count)} float32 contractions a step take {units.duration(total / count)} "
            f"of {units.duration(evidence.wall_ns)}",
            f"{units.flop(flop / count)} a step in them at {units.rate(flop / total * 1e9, 'FLOP')}; "
            f"the float32 peak is {units.rate(now, 'FLOP')}",
            f"peaks of the matrix units: TF32 {units.rate(tf32, 'FLOP')}, 16 bit {units.rate(half, 'FLOP')}",
            f"at the same share of those peaks: {units.duration((total - float(low.sum())) / count)} with TF32, "
            f"{units.duration((total - float(high.sum())) / count)} with 16 bit",
        ],
    )


def slow_calls(evidence: Evidence) -> I8:
    """Calls of float32 contractions that the vector unit's peak holds up."""
    calls = evidence.calls_where(np.array([_off_matrix_units(group) for group in evidence.priced.groups], dtype=bool))
    floor, ns = evidence.calls.floor_ns[calls], evidence.calls.ns[calls]
    return calls[floor >= LEAST_OF_PEAK * ns]


def _off_matrix_units(group: Group) -> bool:
    return (
        group.work.matrix_dtype == "float32"
        and bool(group.work.matrix_flop)
        and group.floor is not None
        and group.floor.bound == "compute"
    )


def _peak(machine: Machine, *dtypes: str) -> float | None:
    """The first known peak among `dtypes`, in FLOP/s."""
    for dtype in dtypes:
        peak, _ = matrix_peak(machine, dtype)
        if peak is not None:
            return peak.value
    return None


def _saved(evidence: Evidence, calls: I8, now: float, then: float | None, size: float) -> NDArray[np.float64]:
    """Nanoseconds saved on each call at the peak `then`, with bytes times `size`; 0 where that peak is not known."""
    ns = evidence.calls.ns[calls]
    if then is None:
        return np.zeros(len(calls))
    memory = evidence.machine.memory_bytes_per_s if evidence.machine else None
    bytes_ = np.array([evidence.group_of(call).work.bytes or 0.0 for call in calls.tolist()])
    least = bytes_ * size / memory.value * 1e9 if memory else np.zeros(len(calls))
    return np.maximum(ns - np.maximum(ns * now / then, least), 0.0)
