"""Matmuls, convolutions and attention by the unit and the element type that they run in."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.claims import NO_CALLS
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.pricing.roofline import matrix_peak
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.analysis.savings.effects import of_calls
from gobrrr.analysis.savings.elsewhere import typed_ratios
from gobrrr.analysis.savings.gains import Effect
from gobrrr.model.events import I8

MATRIX_UNIT_TYPES = ("bfloat16", "float16", "float8", "int8")
"""Element types that only the matrix units run at their full rate."""

LEAST_TYPE_SHARE = 0.5
"""A model counts as one in an element type that has at least this share of its contraction FLOPs. Chosen."""

UNKNOWN_UNIT = "TF32 not known"
"""The beginning of the count's note where a kernel's name does not say whether float32 ran as TF32."""


def flop_by_dtype(evidence: Evidence) -> dict[str, float]:
    """FLOPs of the window's contractions by the unit's element type ("float32": not on the matrix units)."""
    sums: dict[str, float] = defaultdict(float)
    counts = np.bincount(evidence.calls.group, minlength=len(evidence.priced.groups))
    for group, count in zip(evidence.priced.groups, counts.tolist(), strict=True):
        if count and group.work.matrix_flop and group.work.matrix_dtype:
            sums[group.work.matrix_dtype] += count * group.work.matrix_flop
    return dict(sums)


def low_precision(evidence: Evidence) -> tuple[str, float] | None:
    """(element type, its share) where at least half of the contractions' FLOPs run in one of `MATRIX_UNIT_TYPES`; else
    None."""
    sums = flop_by_dtype(evidence)
    total = sum(sums.values())
    for dtype in MATRIX_UNIT_TYPES:
        if total and sums.get(dtype, 0.0) >= LEAST_TYPE_SHARE * total:
            return dtype, sums[dtype] / total
    return None


def off_matrix_units(group: CallGroup) -> bool:
    """Whether a contraction of float32 runs on the vector units, by its kernel's name or for lack of a faster unit."""
    work = group.work
    return work.matrix_dtype == "float32" and bool(work.matrix_flop) and not work.note.startswith(UNKNOWN_UNIT)


def peak_of(evidence: Evidence, *dtypes: str) -> float | None:
    """The first known peak for contractions in one of `dtypes`, in FLOP/s."""
    for dtype in dtypes:
        peak = matrix_peak(evidence.machine, dtype)[0] if evidence.machine else None
        if peak is not None:
            return peak.value
    return None


def saved_at(evidence: Evidence, calls: I8, now: float, then: float | None, size: float = 1.0) -> NDArray[np.float64]:
    """Nanoseconds that each call saves at the peak `then` instead of `now`, if its share of the peak does not change.

    A call takes at least the time of its bytes, times `size`, at the memory's bandwidth. 0 where `then` is not known.
    """
    ns = evidence.calls.ns[calls]
    if then is None:
        return np.zeros(len(calls))
    memory = evidence.machine.memory_bytes_per_s if evidence.machine else None
    bytes_ = np.array([evidence.group_of(call).work.bytes or 0.0 for call in calls.tolist()])
    least = bytes_ * size / memory.value * 1e9 if memory else np.zeros(len(calls))
    return np.maximum(ns - np.maximum(ns * now / then, least), 0.0)


def beside(evidence: Evidence, told: I8 = NO_CALLS) -> list[Effect]:
    """The effect of 16 bits on contractions of float32 other than the calls that a finding has `told` of, on a GPU.

    Contractions that run as TF32 save at least half of what the floors say. Those on the vector units may save nothing:
    a small product has few tiles and leaves most of the device idle. The saving that the peaks give, beside the fixed
    time of a kernel, is expected.
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
    slow = evidence.calls_that(lambda group: off_matrix_units(group) and compute_bound(group))
    calls = np.setdiff1d(slow, told)
    if now is not None and half is not None and len(calls):
        fixed = FIXED_NS * np.maximum(evidence.calls.kernels[calls], 1)
        most = np.minimum(saved_at(evidence, calls, now, half, 0.5), np.maximum(evidence.calls.ns[calls] - fixed, 0.0))
        at_peak = of_calls(evidence, calls, 0.0 * most, most, better=True)
        effects.append(lambda share: at_peak(min(2.0 * share, 1.0)))
    return effects


def compute_bound(group: CallGroup) -> bool:
    """Whether a call's FLOPs at their peak take longer than its bytes at the bandwidth."""
    return group.floor is not None and group.floor.bound == "compute"
