"""How much longer an operation takes with a larger batch: the bytes of its weights do not grow."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.pricing.roofline import matrix_peak
from gobrrr.model.work import DTYPE_BYTES

CONTRACTION_WEIGHTS = {
    "aten::mm": 1, "aten::addmm": 2, "aten::linear": 1,
    "aten::convolution": 1, "aten::_convolution": 1, "aten::cudnn_convolution": 1, "aten::miopen_convolution": 1,
    "aten::mkldnn_convolution": 1, "aten::slow_conv2d_forward": 1, "aten::_slow_conv2d_forward": 1,
}  # fmt: skip
"""Which tensor of a contraction holds the weights, in a forward pass (index into its tensors)."""


def factors(evidence: Evidence, times: float) -> NDArray[np.float64]:
    """By which factor each call takes longer, beside its fixed cost, with `times` the batch.

    The factor is `times`, except for memory-bound contractions in a step without a backward pass. Those read their
    weights once for any batch, until their FLOPs at the peak take longer.
    """
    if evidence.training or not evidence.priced.groups:
        return np.full(len(evidence.calls), times)
    of_group = np.array([_factor(evidence, group, times) for group in evidence.priced.groups])
    return of_group[evidence.calls.group]


def _factor(evidence: Evidence, group: CallGroup, times: float) -> float:
    work, floor, at = group.work, group.floor, CONTRACTION_WEIGHTS.get(group.call.name)
    tensors = group.call.tensors
    if at is None or len(tensors) <= at or floor is None or floor.bound != "memory" or floor.ns <= 0:
        return times
    weights = [tensors[at], *(tensor for tensor in tensors if len(tensor.shape) == 1)]  # with the bias
    peak = matrix_peak(evidence.machine, work.matrix_dtype or "")[0] if evidence.machine else None
    known = all(tensor.dtype in DTYPE_BYTES for tensor in weights)
    if not work.matrix_flop or not work.bytes or peak is None or not known:
        return times
    share = min(sum(math.prod(tensor.shape) * DTYPE_BYTES[tensor.dtype] for tensor in weights) / work.bytes, 1.0)
    moved = share + times * (1.0 - share)
    computed = times * work.matrix_flop / peak.value * 1e9 / floor.ns
    return min(max(moved, computed, 1.0), times) if times >= 1.0 else times
