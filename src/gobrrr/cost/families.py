"""Importing this registers every rule that comes with gobrrr: one file a family."""

from __future__ import annotations

from gobrrr.cost import (
    attention,
    collective,
    convolution,
    distance,
    factories,
    fft,
    indexing,
    inductor,
    linalg,
    losses,
    matmul,
    movement,
    normalization,
    optimizer,
    partial,
    pointwise,
    pooling,
    quantized,
    recurrent,
    reduction,
    softmax,
    sparse,
    vendor,
)

FAMILIES = (
    attention, collective, convolution, distance, factories, fft, indexing, inductor, linalg, losses, matmul,
    movement, normalization, optimizer, partial, pointwise, pooling, quantized, recurrent, reduction, softmax, sparse,
    vendor,
)  # fmt: skip
"""The modules, so that importing them has a use that a linter sees."""
