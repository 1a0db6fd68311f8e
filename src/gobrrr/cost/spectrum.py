"""What a convolution would take by Fourier transforms: the way for long kernels."""

from __future__ import annotations

import math

from gobrrr.model.work import OpCall


def spectral_flop(call: OpCall) -> float | None:
    """FLOPs of the same sums by real transforms of input, weight and result; None where that can't be told.

    A transform of n real numbers takes 2.5 n log2(n), a complex multiply-add 8.
    """
    given, weight = call.tensors[:2] if len(call.tensors) > 1 else (None, None)
    if given is None or weight is None or len(weight.shape) < 3 or len(given.shape) != len(weight.shape):
        return None
    if "backward" in call.name or "transpose" in call.name:
        return None
    size = math.prod(length + kernel - 1 for length, kernel in zip(given.shape[2:], weight.shape[2:], strict=True))
    if size < 2:
        return None
    pairs = math.prod(weight.shape[:2])
    transforms = given.shape[0] * (given.shape[1] + weight.shape[0]) + pairs
    return 2.5 * size * math.log2(size) * transforms + 4 * size * given.shape[0] * pairs
