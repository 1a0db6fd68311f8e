"""What other operations than contractions save where the float32 that they move has half the bytes."""

from __future__ import annotations

import math

import numpy as np

from gobrrr.analysis.effects import of_calls
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Effect
from gobrrr.analysis.price import Group
from gobrrr.analysis.what_if import FIXED_NS
from gobrrr.model.work import ITEM_BYTES

HALF = 0.5
LEAST = 0.5
"""Of the time that the bytes take at the roof, which is what can be told of them, at least so much of the saving: a
kernel that fuses many operations is soon bound by what it computes, and that takes as long in either type."""


def half_the_bytes(evidence: Evidence) -> Effect | None:
    """Operations bound by memory whose float32 tensors are kept in 16 bit; None where there are none.

    At the most each takes less by half of what its float32 is of the bytes that it moves; at the least by half of that,
    of the time at the roof alone. What lies under the fixed time of a kernel stays.
    """
    share = np.array([_float32_share(one) for one in evidence.priced.groups] or [0.0])[evidence.calls.group]
    calls = np.flatnonzero((share > 0) & np.isfinite(evidence.calls.floor_ns))
    if not len(calls):
        return None
    moving = np.maximum(evidence.calls.ns[calls] - FIXED_NS * np.maximum(evidence.calls.kernels[calls], 1), 0.0)
    high = HALF * share[calls] * moving
    low = LEAST * HALF * share[calls] * np.minimum(moving, evidence.calls.floor_ns[calls])
    return of_calls(evidence, calls, low, high)


def _float32_share(group: Group) -> float:
    """Of the bytes that a call's tensors hold, those of float32; 0 for a contraction and what memory does not bind."""
    if group.floor is None or group.floor.bound != "memory" or group.work.matrix_flop or group.work.link != "memory":
        return 0.0
    sizes = [
        (one.dtype, math.prod(one.shape) * ITEM_BYTES[one.dtype])
        for one in group.call.tensors
        if one.dtype in ITEM_BYTES
    ]
    every = sum(size for _, size in sizes)
    return sum(size for dtype, size in sizes if dtype == "float32") / every if every else 0.0
