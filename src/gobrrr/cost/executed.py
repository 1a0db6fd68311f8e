"""FLOPs that the matrix units execute, as hardware counts them: whole tiles, whole clusters, whole diagonal blocks.

What the kernels' names tell; without them `Work.matrix_flop` stands.
"""

from __future__ import annotations

import re

from gobrrr.cost import waves
from gobrrr.cost.arguments import tensor
from gobrrr.cost.attention import products
from gobrrr.cost.registry import Uncounted, plain
from gobrrr.cost.shapes import FMA_FLOP, ceil_divide, item_bytes, numel
from gobrrr.cost.waves import Product
from gobrrr.model.work import OpCall, Tensor, Work

MATMUL = (
    "aten::mm", "aten::bmm", "aten::addmm", "aten::addmm_", "aten::_addmm_activation", "aten::baddbmm", "aten::linear",
    "aten::_scaled_mm", "aten::_int_mm", "aten::mv",
)  # fmt: skip
BROKEN = (ArithmeticError, LookupError, TypeError, ValueError, Uncounted)
"""What arguments that are not those of the op raise."""

_BLOCKS = re.compile(r"Flash_\w+_kernel_traits<\d+, (\d+), (\d+)|(?:aligned|sdpa\w*_flash\w*?)_(\d+)x(\d+)")
"""The block of queries and keys in the name of an attention kernel."""


def tensor_flop(call: OpCall, work: Work) -> float | None:
    """FLOPs that the matrix units execute; `work.matrix_flop` where the kernels' names tell no tile."""
    if work.matrix_flop is None:
        return None
    name = plain(call.name)
    try:
        if name in MATMUL:
            tile = waves.tiling(call.kernels)
            return work.matrix_flop if tile is None else waves.tiled_flop(product_of(call, work), tile)
        if "convolution" in name:
            return work.matrix_flop * _filled(call)
        if "attention" in name:
            return work.matrix_flop * _diagonal(call, work)
    except BROKEN:
        return work.matrix_flop
    return work.matrix_flop


def product_of(call: OpCall, work: Work) -> Product:
    """Sizes of a product from its operands; a vector is a matrix of one column."""
    first = 1 if "addm" in call.name or "baddbmm" in call.name else 0
    left, right = tensor(call, first), tensor(call, first + 1)
    by_row = plain(call.name) == "aten::linear"
    rows, inner = numel(left.shape[:-1]), left.shape[-1]
    columns = (right.shape[0] if by_row else right.shape[-1]) if len(right.shape) > 1 else 1
    batch = 1
    if len(right.shape) == 1:  # the library takes the vector as the left operand
        rows, columns, left, right = 1, rows, right, left
    if len(left.shape) == 3 and len(right.shape) == 3:
        batch, rows = left.shape[0], left.shape[1]
    result = batch * rows * columns
    out = (work.bytes_written or 0.0) / result if result else 0.0
    return Product(batch, rows, columns, inner, item_bytes(left.dtype), item_bytes(right.dtype), out)


def _filled(call: OpCall) -> float:
    """Channels that the matrix units compute over those there are: the inner step of a tile, filled up."""
    tile = waves.tiling(call.kernels)
    channels = tensor(call, 2 if "backward" in call.name else 1).shape[1]
    if tile is None or channels >= tile.inner:
        return 1.0
    return ceil_divide(channels, tile.inner) * tile.inner / channels


def _diagonal(call: OpCall, work: Work) -> float:
    """Pairs that the kernels compute over those that a causal mask leaves: blocks on the diagonal are whole."""
    backward = "backward" in call.name
    query, key = tensor(call, int(backward), 4), tensor(call, int(backward) + 1, 4)
    rows, columns = query.shape[2], key.shape[2]
    if rows != columns or not is_causal(call, query, key, work):
        return 1.0
    found = next((match for name in call.kernels if (match := _BLOCKS.search(name))), None)
    if found is None:
        return 1.0
    block, step = (int(group) for group in found.groups() if group)
    starts = range(0, rows, block)
    pairs = sum(min(block, rows - start) * ceil_divide(min(start + block, rows), step) * step for start in starts)
    return pairs / (rows * (rows + 1) / 2)


def is_causal(call: OpCall, query: Tensor, key: Tensor, work: Work) -> bool:
    """By the count: a causal mask leaves about half of the pairs."""
    full = products(call) * (5.0 if "backward" in call.name else 2.0) * FMA_FLOP * numel(query.shape) * key.shape[2]
    return work.matrix_flop is not None and work.matrix_flop < 0.75 * full
