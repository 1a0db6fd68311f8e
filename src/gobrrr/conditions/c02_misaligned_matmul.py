"""Matmuls whose dimensions are not a multiple of the tensor cores' load size: a vocabulary of 50,257 instead of 50,304.

A thread of a matmul kernel loads 16 bytes at once: 8 numbers of 16 bit, 16 of 8 bit, 4 of float32. Where the length of
a row in memory is not a multiple of that, the library falls back to kernels with smaller loads ("align1" in their
names). These are often of an older generation and reach a small part of the peak.

## How it is recognised

Compute-bound matmuls of at least 20 us with both of these:

- The contiguous dimension of an operand or of the result is not a multiple of 16 bytes. The number of rows (tokens of a
  batch) does not matter.
- They reach less than 70 % of the share of the peak that the trace's aligned matmuls reach together. Where the trace
  has no aligned matmul, 60 % of the peak is assumed for them.

Matmuls of materialised attention are M02's.

## What it costs

With t a call's time, f its floor, p the factor by which padding increases its FLOP, and s the aligned matmuls' share of
the peak:

    cost (low)  = sum of t - f * p / (2/3 * s)
    cost (high) = sum of t - f * p / s

Both are capped at W - host (step time minus host time): only time in which the step waits for the device can be saved.

## What helps

- Pad the dimension to a multiple of 64 (128 for a vocabulary) once, where the weight is created; mask the padded
  logits.
- `torch.compile` pads matmuls itself, copying an operand each time (`torch._inductor.config.shape_padding`).

It gives nothing where the matmul is memory-bound or the step is launch-bound. A multiple of 8 is the minimum: the tile
size matters as well.

## Sick

```python
head = torch.nn.Linear(768, 50257, bias=False)
```

## Healthy

```python
head = torch.nn.Linear(768, 50304, bias=False)  # 50257 padded to a multiple of 64
logits = head(x)[..., :50257]
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.events.ratios import share as share_of
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.pricing.texts import shapes_text
from gobrrr.conditions.common import about_calls, certainty_of, of_step, unable
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.events import I8
from gobrrr.model.work import DTYPE_BYTES, Tensor

CODE = "C02"
TITLE = "misaligned matmul dimensions"

MISALIGNED_SHARE = 0.7
"""A misaligned matmul reaches less than this part of the aligned ones' share: those of one trace differ that much."""

PADDED_LOW_SHARE = 2 / 3
"""The low end assumes that the padded matmul reaches this part of the aligned ones' share; chosen, not measured."""

LOAD_BYTES = 16
"""A thread loads 16 bytes at once; rows that do not begin on a multiple of that are loaded in smaller pieces."""

ALIGNED_SHARE = 0.6
"""Share of the matrix peak assumed for aligned matmuls if the trace has none (0.6 to 0.78 in the shipped traces)."""

LARGE_MATMUL_NS = 20_000
"""In a shorter matmul launch and ramp-up matter more than its loads; chosen, not measured."""

_OPERANDS = {
    "mm": (0, 1), "bmm": (0, 1), "matmul": (0, 1), "linear": (0, 1), "_scaled_mm": (0, 1),
    "addmm": (1, 2), "baddbmm": (1, 2),
}  # fmt: skip
"""The positions of the two factors among an operation's tensors."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Large matmuls with misaligned sizes, far below the aligned ones."""
    if not evidence.device.tensor_cores:
        return None  # a CPU loads rows of any length at the same rate
    missing = unable(CODE, evidence)
    if missing:
        return missing
    own = aligned_share(evidence)
    share = ALIGNED_SHARE if own is None else own
    candidates = [call for call in large_matmuls(evidence).tolist() if odd_sizes(evidence.group_of(call))]
    ns, floor = evidence.calls.ns, evidence.calls.floor_ns
    calls = np.array([call for call in candidates if floor[call] < MISALIGNED_SHARE * share * ns[call]], dtype=np.int64)
    if not len(calls):
        return None
    then = floor[calls] * np.array([padded(evidence.group_of(call)) for call in calls.tolist()]) / share
    high = np.maximum(ns[calls] - then, 0.0)
    low = np.maximum(ns[calls] - then / PADDED_LOW_SHARE, 0.0)
    count = evidence.steps.count
    heaviest = evidence.group_of(int(calls[np.argmax(ns[calls])]))
    reach = share_of(float(floor[calls].sum()), float(ns[calls].sum()))
    sizes = sorted({size for call in calls.tolist() for size in odd_sizes(evidence.group_of(call))})
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        certainty=certainty_of(evidence, "medium" if own is None else "high"),
        treatments=["pad-dimensions", "compile"],
        facts=[
            f"{units.a_step(len(calls) / count, 'matmul')} with sizes that are not a multiple of 16 bytes "
            f"({', '.join(map(str, sizes[:4]))}), the heaviest {shapes_text(heaviest)}",
            f"they take {of_step(evidence, float(ns[calls].sum()) / count)}, at "
            f"{units.percent(reach)} of the matrix peak; at the peak they would take "
            f"{units.duration(float(floor[calls].sum()) / count)}",
            f"the trace's aligned matmuls reach {units.percent(own)} of it"
            if own is not None
            else f"the trace has no aligned matmul to compare with: {units.percent(ALIGNED_SHARE)} is assumed",
            f"the heaviest one's kernel: {heaviest.call.kernels[-1]}",
        ],
    )


def odd_sizes(group: CallGroup) -> tuple[int, ...]:
    """A matmul's sizes along contiguous dimensions that are not a multiple of one load; () if all are."""
    operands = _OPERANDS.get(group.call.name.removeprefix("aten::"))
    arguments = tensors(group.call)
    if operands is None or len(arguments) <= max(operands):
        return ()
    left, right = (arguments[position] for position in operands)
    if min(len(left.shape), len(right.shape)) < 2 or not DTYPE_BYTES.get(left.dtype):
        return ()
    per_load = int(LOAD_BYTES / DTYPE_BYTES[left.dtype])
    columns = right.shape[-2] if group.call.name == "aten::linear" else right.shape[-1]
    return tuple(sorted({size for size in (_row(left), _row(right), columns) if size % per_load}))


def _row(tensor: Tensor) -> int:
    """Elements from one row to the next: the larger of the last two strides; without strides the last size."""
    if tensor.strides is None or len(tensor.strides) != len(tensor.shape) or min(tensor.shape[-2:]) <= 1:
        return tensor.shape[-1]
    return max(tensor.strides[-2:]) if min(tensor.strides[-2:]) == 1 else tensor.shape[-1]


def padded(group: CallGroup) -> float:
    """The factor by which the FLOP increase if the misaligned sizes are padded."""
    per_load = int(LOAD_BYTES / DTYPE_BYTES[tensors(group.call)[0].dtype])
    return float(np.prod([-(-size // per_load) * per_load / size for size in odd_sizes(group)] or [1.0]))


def large_matmuls(evidence: Evidence) -> I8:
    """Calls of compute-bound matmuls on the matrix units that take at least `LARGE_MATMUL_NS`."""
    wanted = [
        group.work.family == "matmul" and group.floor is not None and group.floor.bound == "compute"
        and "matrix" in group.floor.roof
        for group in evidence.priced.groups
    ]  # fmt: skip
    calls = evidence.calls_where(np.array(wanted, dtype=bool))
    return calls[evidence.calls.ns[calls] >= LARGE_MATMUL_NS]


def aligned_share(evidence: Evidence) -> float | None:
    """Share of the matrix peak that the large aligned matmuls reach together; None if the trace has none."""
    calls = [call for call in large_matmuls(evidence).tolist() if not odd_sizes(evidence.group_of(call))]
    ns = float(evidence.calls.ns[calls].sum())
    return float(evidence.calls.floor_ns[calls].sum()) / ns if calls and ns > 0 else None
