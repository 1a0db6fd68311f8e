"""How a matrix product's kernel covers its result: in tiles, a wave of them at a time, and what the waves read.

A tile needs a panel of the left operand (its rows) and one of the right (its columns). The tiles of a wave run side by
side and share panels through the cache; the next wave finds some of them there. Tiles are taken in groups of
GROUP panels, the order that CUTLASS, Triton's tutorial and cuBLAS use to keep a wave near a square.
Sources: NVIDIA, "Matrix Multiplication Background User's Guide" (tile and wave quantization); NVIDIA A100 whitepaper
(the L2 cache has two partitions, each of which caches what the processors next to it read).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from gobrrr.cost.cache import SHARED, kept
from gobrrr.cost.shapes import FMA_FLOP, ceil_divide

PANELS_IN_GROUP = 8
MOST_WAVES = 1024  # counted one by one
DRIFT_PER_WAVE = (
    0.006  # panels read again for each wave that tiles have drifted apart, and cache's worth in a wave beyond one
)


class Product(NamedTuple):
    """`batch` products (rows, inner) x (inner, columns); bytes of one element of left, right and result."""

    batch: int
    rows: int
    columns: int
    inner: int
    left: float
    right: float
    out: float


class Tiling(NamedTuple):
    """Of a kernel: the tile's rows, columns and inner step, and the tiles of a cluster either way."""

    rows: int
    columns: int
    inner: int = 64
    cluster_rows: int = 1
    cluster_columns: int = 1


# nvjet_sm90_tst_320x128_64x3_1x2_h_...: tile, inner x stages, cluster; its first size runs over torch's columns,
# because cuBLAS computes the transposed product of a row-major one.
_NVJET = re.compile(r"nvjet_\w*?_(\d+)x(\d+)_(\d+)x\d+_(\d+)x(\d+)_")
_XMMA = re.compile(r"tilesize(\d+)x(\d+)x(\d+)")
_CUTLASS = re.compile(r"_(\d{2,3})x(\d{2,3})_(\d+)x\d+_")


def tiling(kernels: tuple[str, ...]) -> Tiling | None:
    """The tiles that the kernels' names tell; None when they don't."""
    for name in kernels:
        jet = _NVJET.search(name)
        if jet:
            columns, rows, inner, across, down = map(int, jet.groups())
            return Tiling(rows, columns, inner, down, across)
        found = _XMMA.search(name) or _CUTLASS.search(name)
        if found:
            columns, rows, inner = map(int, found.groups())
            return Tiling(rows, columns, inner)
    return None


def usual(product: Product) -> Tiling:
    """The tile of large products where no name tells it: the accumulators of one fill a processor's registers."""
    return Tiling(64, 128) if product.left > 4 else Tiling(128, 256)


def tiles(product: Product, tile: Tiling) -> tuple[int, int]:
    """Tiles down the rows and across the columns, clusters filled up."""
    down = ceil_divide(ceil_divide(product.rows, tile.rows), tile.cluster_rows) * tile.cluster_rows
    across = ceil_divide(ceil_divide(product.columns, tile.columns), tile.cluster_columns) * tile.cluster_columns
    return down, across


def tiled_flop(product: Product, tile: Tiling) -> float:
    """FLOPs of the product with every tile and cluster computed whole, as the hardware counts them."""
    down, across = tiles(product, tile)
    return float(FMA_FLOP * product.batch * down * tile.rows * across * tile.columns * product.inner)


class PanelReads(NamedTuple):
    """Panels touched by all waves. Grouped dimension: again in the next wave; other: so too, and again later."""

    waves: int
    again: int
    other_again: int
    other_later: int


@lru_cache(maxsize=4096)
def touched(grouped: int, other: int, group: int, processors: int) -> PanelReads:
    """Count the panels of a `grouped` x `other` grid of tiles, `processors` tiles a wave, in groups of `group`."""
    total, whole = grouped * other, group * other
    before: set[int] = set()
    before_other: set[int] = set()
    seen: set[int] = set()
    again = other_again = other_later = waves = 0
    for start in range(0, total, processors):
        end = min(total, start + processors)
        panels: set[int] = set()
        others: set[int] = set()
        for number in range(start // whole, (end - 1) // whole + 1):
            width = min(group, grouped - number * group)
            first, last = max(start - number * whole, 0), min(end - number * whole, width * other) - 1
            count = last - first + 1
            offsets = range(width) if count >= width else [place % width for place in range(first, last + 1)]
            panels.update(number * group + offset for offset in offsets)
            others.update(range(first // width, last // width + 1))
        again += len(panels & before)
        other_again += len(others & before_other)
        other_later += len((others & seen) - before_other)
        seen |= others
        before, before_other = panels, others
        waves += 1
    return PanelReads(waves, again, other_again, other_later)


def _sampled(grouped: int, other: int, processors: int) -> PanelReads:
    """`touched`, for a very large grid that of a part of it, scaled up."""
    most = MOST_WAVES * processors
    rows = min(
        grouped, max(32 * PANELS_IN_GROUP, most // max(1, other) // PANELS_IN_GROUP * PANELS_IN_GROUP)
    )  # 32 groups: the last comes back too
    columns = min(other, max(1, most // rows))
    count = touched(rows, columns, min(PANELS_IN_GROUP, rows), processors)
    whole = (grouped * other) / (rows * columns)
    return count if whole == 1 else PanelReads(*(round(amount * whole) for amount in count))


def reads(product: Product, tile: Tiling, *, cache_bytes: float, processors: int) -> float:
    """Bytes that the kernel reads of both operands from DRAM, in the better of the two orders of tiles."""
    down, across = tiles(product, tile)
    left = product.rows * product.inner * product.left / down
    right = product.columns * product.inner * product.right / across
    result = product.rows * product.columns * product.out / (down * across)
    orders = (
        _reads(down, across, left, right, result, cache_bytes, processors),
        _reads(across, down, right, left, result, cache_bytes, processors),
    )
    return product.batch * min(orders)


def _reads(
    grouped: int, other: int, panel: float, other_panel: float, result: float, cache_bytes: float, processors: int
) -> float:
    count = _sampled(grouped, other, processors)
    shared = SHARED * cache_bytes
    first = grouped * panel + other * other_panel
    every = first + count.again * panel + (count.other_again + count.other_later) * other_panel
    wave = every / count.waves
    written = min(processors, grouped * other) * result
    next_wave = kept(wave + written, shared)
    # A later group comes back to the other dimension's panels after a pass over all of them.
    next_group = kept(PANELS_IN_GROUP * panel + other * (other_panel + PANELS_IN_GROUP * result), shared)
    again = (1 - next_wave) * (count.again * panel + count.other_again * other_panel)
    later = (1 - next_group) * count.other_later * other_panel
    apart = DRIFT_PER_WAVE * (count.waves - 1) * max(0.0, wave / shared - 1) if shared > 0 else 0.0
    sharers = min(processors, grouped * other) / max(1, min(PANELS_IN_GROUP, grouped))
    return (first + again + later) * (1 + min(apart, max(0.0, sharers - 1)))
