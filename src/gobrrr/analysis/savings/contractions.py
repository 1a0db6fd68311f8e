"""Matmuls, convolutions and attention by the unit that they run on: what a model mostly computes in."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Group
from gobrrr.analysis.pricing.roofline import matrix_peak
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.analysis.savings.effects import of_calls
from gobrrr.analysis.savings.elsewhere import typed_ratios
from gobrrr.analysis.savings.gains import Effect
from gobrrr.model.events import I8

LOW = ("bfloat16", "float16", "float8", "int8")
"""Element types that only the matrix units take at their full rate."""

BULK = 0.5
"""Share of a model's contraction FLOP from which on it counts as a model in that element type."""

UNKNOWN_UNIT = "TF32 not known"
"""How the count's note begins where a kernel's name does not say whether float32 ran as TF32."""


def flop_by_dtype(evidence: Evidence) -> dict[str, float]:
    """FLOP of the window's contractions by the unit's element type ("float32": off the matrix units)."""
    sums: dict[str, float] = defaultdict(float)
    counts = np.bincount(evidence.calls.group, minlength=len(evidence.priced.groups))
    for group, count in zip(evidence.priced.groups, counts.tolist(), strict=True):
        if count and group.work.matrix_flop and group.work.matrix_dtype:
            sums[group.work.matrix_dtype] += count * group.work.matrix_flop
    return dict(sums)


def low_precision(evidence: Evidence) -> tuple[str, float] | None:
    """(element type, its share of the FLOP) where at least half of the contractions' FLOP run in one of `LOW`."""
    sums = flop_by_dtype(evidence)
    total = sum(sums.values())
    for dtype in LOW:
        if total and sums.get(dtype, 0.0) >= BULK * total:
            return dtype, sums[dtype] / total
    return None


def off_matrix_units(group: Group) -> bool:
    """A contraction of float32 that the kernel's name, or the lack of a faster unit, puts on the vector units."""
    work = group.work
    return work.matrix_dtype == "float32" and bool(work.matrix_flop) and not work.note.startswith(UNKNOWN_UNIT)


def peak_of(evidence: Evidence, *dtypes: str) -> float | None:
    """The first known peak for contractions among `dtypes`, in FLOP/s."""
    for dtype in dtypes:
        peak = matrix_peak(evidence.machine, dtype)[0] if evidence.machine else None
        if peak is not None:
            return peak.value
    return None


def saved_at(evidence: Evidence, calls: I8, now: float, then: float | None, size: float = 1.0) -> NDArray[np.float64]:
    """Nanoseconds that each call saves at the peak `then` with the share of the peak that it has now.

    No call gets shorter than its bytes, times `size`, need at the memory's bandwidth. 0 where `then` is not known.
    """
    ns = evidence.calls.ns[calls]
    if then is None:
        return np.zeros(len(calls))
    memory = evidence.machine.memory_bytes_per_s if evidence.machine else None
    bytes_ = np.array([evidence.group_of(call).work.bytes or 0.0 for call in calls.tolist()])
    least = bytes_ * size / memory.value * 1e9 if memory else np.zeros(len(calls))
    return np.maximum(ns - np.maximum(ns * now / then, least), 0.0)


NONE: I8 = np.array([], dtype=np.int64)


def beside(evidence: Evidence, told: I8 = NONE) -> list[Effect]:
    """What 16 bits do to contractions of float32 beside the calls that a finding has `told` of, on a GPU.

    Those that run as TF32 take half of the saving at the least. Those off the matrix units take as long as now at the
    least: few tiles of a small product leave most of the device idle, but each processor computes the longer for its
    float32. What is expected is what the peaks say, beside the fixed time of a kernel.
    """
    if not evidence.device.narrow_is_faster:
        return []
    effects: list[Effect] = []
    ratio = typed_ratios(evidence, "bfloat16", "tf32")[evidence.calls.group]
    calls = np.setdiff1d(np.flatnonzero(np.isfinite(ratio) & (ratio < 1.0)), told)
    if len(calls):
        less = evidence.calls.ns[calls] * (1.0 - ratio[calls])
        effects.append(of_calls(evidence, calls, less / 2, less, better=True))
    now, half = peak_of(evidence, "float32"), peak_of(evidence, "bfloat16", "float16")
    slow = [off_matrix_units(group) and compute_bound(group) for group in evidence.priced.groups]
    calls = np.setdiff1d(evidence.calls_where(np.array(slow, dtype=bool)), told)
    if now is not None and half is not None and len(calls):
        fixed = FIXED_NS * np.maximum(evidence.calls.kernels[calls], 1)
        most = np.minimum(saved_at(evidence, calls, now, half, 0.5), np.maximum(evidence.calls.ns[calls] - fixed, 0.0))
        at_peak = of_calls(evidence, calls, 0.0 * most, most, better=True)
        effects.append(lambda share: at_peak(min(2.0 * share, 1.0)))
    return effects


def compute_bound(group: Group) -> bool:
    """Whether a call's FLOPs at their peak take longer than its bytes."""
    return group.floor is not None and group.floor.bound == "compute"
