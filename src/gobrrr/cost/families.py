"""Importing this registers every rule that comes with gobrrr: one file a family."""

from __future__ import annotations

from gobrrr.cost import (
    attention,
    collective,
    convolution,
    indexing,
    inductor,
    matmul,
    movement,
    normalization,
    optimizer,
    pointwise,
    pooling,
    quantized,
    recurrent,
    reduction,
    softmax,
    vendor,
)

FAMILIES = (
    attention, collective, convolution, indexing, inductor, matmul, movement, normalization, optimizer, pointwise,
    pooling, quantized, recurrent, reduction, softmax, vendor,
)  # fmt: skip
"""The modules, so that importing them has a use that a linter sees."""
