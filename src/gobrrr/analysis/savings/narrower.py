"""What other operations than contractions save where the float32 that they move has half the bytes."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Group
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.analysis.savings.effects import of_bytes
from gobrrr.analysis.savings.gains import Effect
from gobrrr.model.work import ITEM_BYTES

HALF = 0.5
LEAST = 0.5
"""Of the time that the bytes take at the roof, which is what can be told of them, at least so much of the saving: a
kernel that fuses many operations is soon bound by what it computes, and that takes as long in either type."""

BEHIND = re.compile(r"batch_norm|relu|threshold|hardtanh|hardswish|clamp_min|gelu|silu|max_pool|avg_pool")
"""Operations that stand behind contractions and keep the type of what they are given."""

FLOAT32 = re.compile(r"layer_norm|group_norm|softmax|nll_loss|cross_entropy")
"""What autocast runs in float32, fused or not (pytorch.org, "Automatic Mixed Precision": ops that autocast to
float32)."""

SUMS = ("aten::add", "aten::add_")
IMAGES = 4
"""Dimensions of a batch of images. Between convolutions and batch norms sums of them are in 16 bit as well."""


def half_behind_contractions(evidence: Evidence) -> Effect | None:
    """The same under autocast, of the operations that then are given 16 bit: what stands behind contractions.

    Told by names, for a trace does not say which result an operation reads. Where a group norm gives its float32 to
    activations, they are left out.
    """
    names = [group.call.name for group in evidence.priced.groups]
    batches = any("batch_norm" in name for name in names)
    groups = any("group_norm" in name for name in names)
    chosen = np.array([_is_behind(group, batches, groups) for group in evidence.priced.groups] or [False])
    updated = np.isin(evidence.calls.first, evidence.updates.work)  # weights stay float32, and so does what is theirs
    return half_the_bytes(evidence, chosen[evidence.calls.group] & ~updated)


def _is_behind(group: Group, batches: bool, groups: bool) -> bool:
    name = group.call.name
    if FLOAT32.search(name):
        return False
    if groups:
        return "batch_norm" in name
    images = any(len(tensor.shape) == IMAGES for tensor in group.call.tensors)
    return bool(BEHIND.search(name)) or (batches and images and name in SUMS)


def half_the_bytes(evidence: Evidence, chosen: NDArray[np.bool_] | None = None) -> Effect | None:
    """Operations bound by memory whose float32 tensors are kept in 16 bit; None where there are none.

    `chosen`: whether a call is among them, for each of `calls`; None: all are.

    At the most each takes less by half of what its float32 is of the bytes that it moves; at the least by half of that,
    of the time at the roof alone. What lies under the fixed time of a kernel stays.
    """
    share = np.array([_float32_share(group) for group in evidence.priced.groups] or [0.0])[evidence.calls.group]
    share = share if chosen is None else np.where(chosen, share, 0.0)
    calls = np.flatnonzero((share > 0) & np.isfinite(evidence.calls.floor_ns))
    if not len(calls):
        return None
    moving = np.maximum(evidence.calls.ns[calls] - FIXED_NS * np.maximum(evidence.calls.kernels[calls], 1), 0.0)
    high = HALF * share[calls] * moving
    low = LEAST * HALF * share[calls] * np.minimum(moving, evidence.calls.floor_ns[calls])
    return of_bytes(evidence, calls, low, high)


def _float32_share(group: Group) -> float:
    """Of the bytes that a call's tensors hold, those of float32; 0 for a contraction and what memory does not bind."""
    if group.floor is None or group.floor.bound != "memory" or group.work.matrix_flop or group.work.link != "memory":
        return 0.0
    sizes = [
        (tensor.dtype, math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype])
        for tensor in group.call.tensors
        if tensor.dtype in ITEM_BYTES
    ]
    every = sum(size for _, size in sizes)
    return sum(size for dtype, size in sizes if dtype == "float32") / every if every else 0.0
