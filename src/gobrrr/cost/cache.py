"""What a last-level cache keeps: between two reads of the same lines, and of the lines written last.

A cache that evicts the least recently used would hold everything up to its size and nothing beyond; hashed sets and
processors out of step smear the edge. The constants are fractions of the cache's size, read off hardware counters of
an H100 (bench/results/h100_counters.json) on the operations that are not held out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gobrrr.cost.shapes import ceil_divide, item_bytes, read_bytes, stored_elements
from gobrrr.model.work import Tensor

SECTOR_BYTES = 32  # the least that the cache writes, and reads between neighbours
FETCH_BYTES = 64
"""The least that the cache fetches from DRAM: CUDA's default for cudaLimitMaxL2FetchGranularity. An H100 read 64.04 and
64.03 bytes for each of 524,288 and 262,144 scores of `nll_loss` that lie alone (bench/results/h100_counters.json)."""
KEPT_ALL, KEPT_NONE = 0.57, 1.15  # of the cache, read in between: all lines are still there, none is
SHARED = 0.75  # of the cache, for what all processors read: either partition keeps some of the other's lines too
DIRTY, MIXED = 0.44, 0.76  # of the cache: written lines left at the end, at most, and of the writes' share of traffic
READ_SHARE = 0.5  # of the cache: what a kernel that writes as much as it reads leaves to the reads


class KernelTraffic(NamedTuple):
    """Bytes that one kernel reads from DRAM and that it writes, the cache's part included."""

    read: float
    written: float


class CacheModel(NamedTuple):
    """What the model needs of a device."""

    cache_bytes: float
    processors: int


TrafficPlan = tuple[list[KernelTraffic], str]


def kept(between: float, cache_bytes: float) -> float:
    """The part of some lines still in the cache after `between` bytes of others: all, none, or evenly falling."""
    if cache_bytes <= 0:
        return 0.0
    return min(1.0, max(0.0, (KEPT_NONE - between / cache_bytes) / (KEPT_NONE - KEPT_ALL)))


def left(kernel: KernelTraffic, cache_bytes: float) -> float:
    """Written bytes that are still in the cache when the kernel ends."""
    moved = kernel.read + kernel.written
    share = kernel.written / moved if moved > 0 else 0.0
    return min(kernel.written, DIRTY * cache_bytes, MIXED * cache_bytes * share)


def alone(elements: float, whole_bytes: float, each: float, least: float = FETCH_BYTES) -> float:
    """Bytes that move for `elements` at random places of `whole_bytes`, each of `each` bytes, in pieces of `least`.

    n pieces, k elements: a piece is missed by all of them with the probability (1 - 1 / n)^k. Elements as large as a
    piece move once each, no more of them than there are.
    """
    if each >= least or whole_bytes <= each:
        return min(elements * each, whole_bytes)
    pieces = whole_bytes / least
    if pieces <= 1:
        return min(elements, 1.0) * whole_bytes
    return -whole_bytes * math.expm1(elements * math.log1p(-1 / pieces))


def spread_bytes(tensor: Tensor) -> float:
    """Bytes in the sectors that a strided tensor's elements lie in."""
    each = item_bytes(tensor.dtype)
    if tensor.strides is None or len(tensor.strides) != len(tensor.shape) or not stored_elements(tensor):
        return read_bytes(tensor)
    dims = sorted(
        (step, size) for size, step in zip(tensor.shape, tensor.strides, strict=True) if size > 1 and step > 0
    )
    run = 1
    for step, size in dims:
        if step != run:
            break
        run *= size
    span = (1 + sum((size - 1) * step for step, size in dims)) * each
    runs = stored_elements(tensor) / run
    return min(span, runs * ceil_divide(int(run * each), SECTOR_BYTES) * SECTOR_BYTES)
