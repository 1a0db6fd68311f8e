"""Matmuls, convolutions and attention by the unit that they run on: what a model mostly computes in."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.price import Group
from gobrrr.analysis.roofline import matrix_peak
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
