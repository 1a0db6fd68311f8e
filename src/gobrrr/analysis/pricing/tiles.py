"""A matrix product in whole tiles and whole waves of tiles: the cost of partial tiles and of a partial last wave.

A kernel computes the result in tiles, each on one processor; the processors work through the tiles in waves, and the
last wave takes as long as a full one. The library's choice of a tile is not known: the best of a few common tiles is
assumed. Source: NVIDIA, "Matrix Multiplication Background User's Guide", sections on tile and wave quantization.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gobrrr.model.work import OpCall, Tensor, Work


class Tile(NamedTuple):
    """Rows and columns of the result, and the tile's rate relative to the largest tile's."""

    rows: int
    columns: int
    rate: float


TILES = (
    Tile(128, 256, 1.0), Tile(256, 128, 1.0), Tile(192, 192, 1.0), Tile(320, 128, 1.0), Tile(128, 320, 1.0),
    Tile(192, 256, 1.0), Tile(256, 192, 1.0), Tile(128, 192, 0.95), Tile(192, 128, 0.95), Tile(128, 128, 0.9),
    Tile(64, 256, 0.85), Tile(256, 64, 0.85), Tile(64, 192, 0.8), Tile(64, 128, 0.75), Tile(128, 64, 0.75),
    Tile(64, 64, 0.5),
)  # fmt: skip
"""Sizes as in the names of cuBLAS' kernels (bench/results/h100_ops.json). Smaller tiles read their operands more often,
so their rate is lower (the guide's figure on tile sizes, rounded to a twentieth)."""

SPLITS = (1, 2, 3, 4, 6, 8, 16)
LEAST_DEPTH = 1024
"""Into how many slices a product is split along the inner dimension, and the least length of a slice. Chosen, not
measured."""


class MatrixProduct(NamedTuple):
    """`batch` products of [m, k] x [k, n]."""

    batch: int
    m: int
    n: int
    k: int


def product_of(call: OpCall) -> MatrixProduct | None:
    """The sizes of a matrix product; None for other calls and where they are not recorded."""
    name = call.name.removeprefix("aten::").split(".")[0]
    places = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_scaled_mm": (0, 1), "_int_mm": (0, 1)}
    operands = places.get(name)
    if operands is None or len(call.inputs) <= operands[1]:
        return None
    left, right = call.inputs[operands[0]], call.inputs[operands[1]]
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or len(left.shape) != len(right.shape):
        return None
    if len(left.shape) not in (2, 3):
        return None
    batch = left.shape[0] if len(left.shape) == 3 else 1
    return MatrixProduct(batch, left.shape[-2], right.shape[-1], left.shape[-1])


def padded_flop(call: OpCall, work: Work, processors: int | None) -> float:
    """FLOPs of the product if every tile and every wave were full; the call's own FLOPs where sizes are not known."""
    own = work.matrix_flop or 0.0
    sizes = product_of(call)
    if sizes is None or not processors or min(sizes) < 1:
        return own
    return max(own, min(_in_waves(sizes, tile, processors) for tile in TILES))


def _in_waves(sizes: MatrixProduct, tile: Tile, processors: int) -> float:
    tiles = sizes.batch * math.ceil(sizes.m / tile.rows) * math.ceil(sizes.n / tile.columns)
    allowed = [split for split in SPLITS if split == 1 or sizes.k // split >= LEAST_DEPTH]
    depths = (math.ceil(tiles * split / processors) * math.ceil(sizes.k / split) for split in allowed)
    return min(depths) * processors * tile.rows * tile.columns * 2.0 / tile.rate
