"""The saving of operations other than contractions whose float32 tensors get half the bytes."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.analysis.savings.effects import of_bytes
from gobrrr.analysis.savings.gains import Effect
from gobrrr.model.work import DTYPE_BYTES

HALF_BYTES = 0.5
"""The bytes of a number in 16 bits over those in float32."""

LEAST_BYTES_SAVING = 0.5
"""The least share of the saving, of the time of the bytes at the roof. A kernel that fuses many operations is soon
bound by its arithmetic, which takes as long in either type. Chosen, not measured."""

AFTER_CONTRACTIONS = re.compile(r"batch_norm|relu|threshold|hardtanh|hardswish|clamp_min|gelu|silu|max_pool|avg_pool")
"""Operations that follow contractions and keep the type of their inputs."""

AUTOCAST_FLOAT32_OPS = re.compile(r"layer_norm|group_norm|softmax|nll_loss|cross_entropy")
"""Operations that autocast runs in float32, fused or not (pytorch.org, "Automatic Mixed Precision": ops that autocast
to float32)."""

RESIDUAL_SUMS = ("aten::add", "aten::add_")
IMAGE_DIMENSIONS = 4
"""The number of dimensions of a batch of images. Between convolutions and batch norms, `RESIDUAL_SUMS` of images are in
16 bits as well."""


def half_behind_contractions(evidence: Evidence) -> Effect | None:
    """The saving under autocast: only operations that follow contractions get tensors in 16 bits.

    The names of the operations decide, for a trace does not say which result an operation reads. Where group norms pass
    float32 on to activations, the activations are left out.
    """
    names = [group.call.name for group in evidence.priced.groups]
    batches = any("batch_norm" in name for name in names)
    groups = any("group_norm" in name for name in names)
    chosen = np.array([_is_behind(group, batches, groups) for group in evidence.priced.groups] or [False])
    updated = np.isin(evidence.calls.first, evidence.updates.work)  # weights and optimizer states stay float32
    return half_the_bytes(evidence, chosen[evidence.calls.group] & ~updated)


def _is_behind(group: CallGroup, batches: bool, groups: bool) -> bool:
    name = group.call.name
    if AUTOCAST_FLOAT32_OPS.search(name):
        return False
    if groups:
        return "batch_norm" in name
    images = any(len(tensor.shape) == IMAGE_DIMENSIONS for tensor in group.call.tensors)
    return bool(AFTER_CONTRACTIONS.search(name)) or (batches and images and name in RESIDUAL_SUMS)


def half_the_bytes(evidence: Evidence, chosen: NDArray[np.bool_] | None = None) -> Effect | None:
    """Memory-bound operations get their float32 tensors in 16 bits; None where there are no such operations.

    `chosen`: one flag per call, whether it may be among them; None: all may. At the most, a call saves half of
    float32's share of its bytes, of its time beside the fixed time of a kernel. At the least it saves
    `LEAST_BYTES_SAVING` of that, of the time at the roof alone.
    """
    share = np.array([_float32_share(group) for group in evidence.priced.groups] or [0.0])[evidence.calls.group]
    share = share if chosen is None else np.where(chosen, share, 0.0)
    calls = np.flatnonzero((share > 0) & np.isfinite(evidence.calls.floor_ns))
    if not len(calls):
        return None
    moving = np.maximum(evidence.calls.ns[calls] - FIXED_NS * np.maximum(evidence.calls.kernels[calls], 1), 0.0)
    high = HALF_BYTES * share[calls] * moving
    low = LEAST_BYTES_SAVING * HALF_BYTES * share[calls] * np.minimum(moving, evidence.calls.floor_ns[calls])
    return of_bytes(evidence, calls, low, high)


def _float32_share(group: CallGroup) -> float:
    """The share of float32 in the bytes of a call's tensors; 0 for contractions and for calls not bound by memory."""
    if group.floor is None or group.floor.bound != "memory" or group.work.matrix_flop or group.work.link != "memory":
        return 0.0
    sizes = [
        (tensor.dtype, math.prod(tensor.shape) * DTYPE_BYTES[tensor.dtype])
        for tensor in group.call.tensors
        if tensor.dtype in DTYPE_BYTES
    ]
    total = sum(size for _, size in sizes)
    return sum(size for dtype, size in sizes if dtype == "float32") / total if total else 0.0
