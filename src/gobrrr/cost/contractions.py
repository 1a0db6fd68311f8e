"""DRAM traffic of matrix products, convolutions and attention: operands that come again, copies, float32 sums.

Each plan takes a call, `price`'s Work and the device, and gives the op's kernels. gobrrr.cost.traffic chooses among
them; executed.py counts the same kernels' FLOPs.
"""

from __future__ import annotations

import math

from gobrrr.cost import waves
from gobrrr.cost.arguments import flags, integers, tensor, tensors
from gobrrr.cost.cache import SHARED, CacheModel, KernelTraffic, TrafficPlan, kept
from gobrrr.cost.executed import is_causal, product_of
from gobrrr.cost.registry import Uncounted
from gobrrr.cost.shapes import ceil_divide, item_bytes, numel, read_bytes, write_bytes
from gobrrr.cost.waves import Product
from gobrrr.model.work import OpCall, Tensor, Work

TRITON_TILE = waves.Tiling(128, 128)
"""Taken for a Triton product, whose name tells no tile."""
FLASH_ROWS = 128  # query rows of a block
FLOAT_BYTES = 4
"""Of a float32 partial sum."""


def matmul(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """Waves of tiles read panels again; an inner dimension split over the processors leaves partial sums."""
    product = product_of(call, work)
    tile = waves.tiling(call.kernels) or waves.usual(product)
    operands = (product.rows * product.left + product.columns * product.right) * product.inner * product.batch
    least = work.bytes_read or 0.0
    modelled = waves.reads(product, tile, cache_bytes=machine.cache_bytes, processors=machine.processors)
    read = max(least, least - operands + modelled)
    down, across = waves.tiles(product, tile)
    why = "panels of the operands are read again from wave to wave" if read > 1.01 * least else ""
    written = work.bytes_written or 0.0
    if not any("splitK" in name for name in call.kernels):
        return [KernelTraffic(read, written)], why
    # Tiles too few for the processors: each computes a part of the inner dimension, in float32, and a kernel adds them.
    parts = max(2, machine.processors // (down * across * product.batch))
    partial = parts * product.batch * product.rows * product.columns * FLOAT_BYTES
    return [KernelTraffic(read, partial), KernelTraffic(partial, written)], "partial sums of a split inner dimension"


def template(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """A Triton product of buffers: left, right, ..., result."""
    buffers = list(tensors(call))
    left, right, out = buffers[0], buffers[1], buffers[-1]
    inner = (numel(left.shape) * numel(right.shape) / numel(out.shape)) ** 0.5
    rows, columns = round(numel(left.shape) / inner), round(numel(right.shape) / inner)
    product = Product(1, rows, columns, round(inner), *(item_bytes(buffer.dtype) for buffer in (left, right, out)))
    read = waves.reads(product, TRITON_TILE, cache_bytes=machine.cache_bytes, processors=machine.processors)
    rest = (work.bytes_read or 0.0) - read_bytes(left, right)
    return [
        KernelTraffic(read + rest, work.bytes_written or 0.0)
    ], "panels of the operands are read again from wave to wave"


def _layouts(call: OpCall, given: Tensor, depthwise: bool) -> bool:
    """Whether the library turns channels-first tensors around first, as its matrix-unit kernels want."""
    if call.kernels:
        return any("nchwToNhwc" in name for name in call.kernels)
    first = given.strides is not None and len(given.strides) > 2 and given.strides[1] != 1
    return first and not depthwise


def _pads(call: OpCall, given: Tensor) -> bool:
    """Whether channels are filled up to 8 in a copy: the matrix units read 16 bytes at once."""
    if call.kernels:
        return any("AddPadding" in name for name in call.kernels)
    return item_bytes(given.dtype) == 2 and given.shape[1] % 8 != 0


def convolution(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """Input and output once: neighbouring windows meet in the cache. Copies where the layout or channels don't fit."""
    given, weight = tensor(call, 0), tensor(call, 1)
    read, written = work.bytes_read or 0.0, work.bytes_written or 0.0
    if _pads(call, given):
        whole = read_bytes(given)
        padded = whole / given.shape[1] * ceil_divide(given.shape[1], 8) * 8
        # The padded copy is written in pieces of a sector, which the cache fetches first.
        kernels = [KernelTraffic(whole + padded, padded), KernelTraffic(max(0.0, read - whole) + padded, written)]
        return kernels, "channels are padded to 8 in a copy"
    if not _layouts(call, given, depthwise=not work.matrix_flop):
        return [KernelTraffic(read, written)], ""
    return _turned([given, weight], KernelTraffic(read, written), [written]), "copies from and to channels last"


def _turned(inputs: list[Tensor], main: KernelTraffic, outputs: list[float]) -> list[KernelTraffic]:
    """A kernel on channels-last copies of its inputs, and copies of its outputs back."""
    before = [KernelTraffic(read_bytes(given), read_bytes(given)) for given in inputs]
    return [*before, main, *(KernelTraffic(output, output) for output in outputs)]


def convolution_backward(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """A kernel for each wanted gradient, which goes through dY as often as its tiles and strides need."""
    grad, given, weight, mask = tensor(call, 0), tensor(call, 1), tensor(call, 2), flags(call, 10)
    if mask is None:
        raise Uncounted("which gradients are computed is not recorded")
    kernels, why = [], ""
    depthwise = not work.matrix_flop
    turned = _layouts(call, given, depthwise)
    if mask[0]:
        phases = 1 if depthwise else _phases(weight, integers(call, 4) or (1,))
        dy, dx = read_bytes(grad), write_bytes(given.shape, grad.dtype)
        # One pass over dY for every position within a stride, each of which writes its part of dX.
        again = (phases - 1) * (1 - kept(dy + dx / phases, SHARED * machine.cache_bytes))
        main = KernelTraffic(dy * (1 + again) + read_bytes(weight), dx)
        kernels += _turned([grad, weight], main, [dx]) if turned else [main]
        why = "dY is read once for every position within the stride" if again else ""
    if mask[1]:
        passes = 1 if depthwise else _weight_waves(call, weight, machine)
        # Of X what some window touches: the rest of what `price` counted.
        others = read_bytes(grad) * (1 + mask[2]) + mask[0] * read_bytes(grad, weight)
        touched = max(0.0, (work.bytes_read or 0.0) - others)
        main = KernelTraffic(passes * (read_bytes(grad) + touched), write_bytes(weight.shape, grad.dtype))
        kernels += _turned([grad, given], main, [main.written]) if turned else [main]
    if mask[2]:
        kernels.append(KernelTraffic(read_bytes(grad), 0.0))
    return kernels, "copies from and to channels last" if turned else why


def _phases(weight: Tensor, strides: tuple[int, ...]) -> int:
    """Positions within the stride that some element of the window falls on: each takes a pass over dY."""
    window = weight.shape[2:]
    steps = strides if len(strides) == len(window) else strides[:1] * len(window)
    return math.prod(min(step, size) for step, size in zip(steps, window, strict=True))


def _weight_waves(call: OpCall, weight: Tensor, machine: CacheModel) -> int:
    """Waves of tiles of dW, each of which goes through all of dY and X; fewer tiles than processors are split."""
    name = next((name for name in call.kernels if "wgrad" in name), "")
    tile = waves.tiling((name,)) or waves.Tiling(128, 128)
    tiles = ceil_divide(weight.shape[0], tile.columns) * ceil_divide(numel(weight.shape[1:]), tile.rows)
    return ceil_divide(tiles, machine.processors)


def attention(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """Every block of query rows goes through all keys and values of its head; causal blocks run out of step."""
    query, key, value = (tensor(call, place, 4) for place in range(3))
    read, written = work.bytes_read or 0.0, work.bytes_written or 0.0
    rows = query.shape[2]
    causal = is_causal(call, query, key, work)
    heads = 2 * machine.processors / max(1, ceil_divide(rows, FLASH_ROWS))  # two blocks a processor
    pairs = read_bytes(key, value)
    in_flight = min(pairs, heads * pairs / max(1, numel(key.shape[:2])) * (2 if causal else 1))
    lost = 1 - kept(in_flight, SHARED * machine.cache_bytes) if rows > FLASH_ROWS else 0.0
    return [KernelTraffic(read + lost * pairs, written)], "keys and values are read again" if lost else ""


def flash_backward(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """dQ is summed in float32: zeroed, added into, and converted, each a pass. Other layouts are copied first."""
    grad, query, key, value, out = (tensor(call, place, 4) for place in range(5))
    sums = numel(query.shape) * FLOAT_BYTES
    own = [KernelTraffic(read_bytes(part), read_bytes(part)) for part in (grad, out) if not _by_token(part)]
    gradients = write_bytes(query.shape, query.dtype)
    others = read_bytes(key, value)
    kernels = [
        *own,
        KernelTraffic(read_bytes(grad, out), sums),
        KernelTraffic(read_bytes(grad, query, key, value) + sums, others + sums),
        KernelTraffic(sums, gradients),
    ]
    return kernels, "dQ is summed in float32 in memory"


def _by_token(given: Tensor) -> bool:
    """Whether a (batch, heads, tokens, size) tensor lies as (batch, tokens, heads, size), as the kernels want it."""
    return given.strides is not None and given.strides[1] < given.strides[2]


def efficient_backward(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """dQ of a half type is summed in a float32 copy, zeroed first."""
    query = tensor(call, 1, 4)
    read, written = work.bytes_read or 0.0, work.bytes_written or 0.0
    if query.dtype == "float32":
        return [KernelTraffic(read, written)], ""
    sums = numel(query.shape) * FLOAT_BYTES
    return [KernelTraffic(0.0, sums), KernelTraffic(read + sums, written + sums)], "dQ is summed in float32 in memory"
