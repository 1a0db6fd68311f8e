"""The DRAM bytes that a call really moves on a machine with a last-level cache: what a hardware counter would show.

`price` counts every input read once and every output written once. A kernel reads more where an operand comes again
after the cache has lost it (matrix products, rows too long for the chip, strided dY, attention), where it reads whole
sectors for single elements, and where an op makes temporary tensors; it writes less by what is still in the cache at
the end. Each kernel is taken to start with a cold cache. The constants are fractions of the cache's size, chosen on
one set of measured operations and tested on another (tests/cost/test_dram.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from gobrrr.cost import contractions
from gobrrr.cost.arguments import integer, integers, tensor, tensors
from gobrrr.cost.cache import (
    FETCH_BYTES,
    READ_SHARE,
    CacheModel,
    KernelTraffic,
    TrafficPlan,
    alone,
    kept,
    left,
    spread_bytes,
)
from gobrrr.cost.contractions import FLOAT_BYTES
from gobrrr.cost.executed import BROKEN, MATMUL
from gobrrr.cost.optimizer import CHUNK_ELEMENTS
from gobrrr.cost.registry import Uncounted, plain
from gobrrr.cost.shapes import ceil_divide, item_bytes, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, TensorList, Work

THREADS = 2048  # of a processor (compute capability 8.0 and 9.0)
ON_CHIP_BYTES = 48 * 1024  # shared memory that a block gets without asking: longer rows are read again
LAUNCH_BLOCKS = 320  # of one launch of PyTorch's multi_tensor_apply


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """Bytes read from and written to DRAM; None: not counted. `why` says what makes them differ from the count."""

    read_bytes: float | None
    written_bytes: float | None
    why: str = ""


def dram(call: OpCall, work: Work, *, cache_bytes: float | None, processors: int | None) -> Traffic:
    """The DRAM traffic of a call whose `work` is `price(call)`. Never raises: without a model it is as counted.

    `cache_bytes`: the last-level cache; `processors`: streaming multiprocessors. Without either, or for work that is
    not on the device's memory, the count itself comes back.
    """
    if work.bytes_read is None or work.bytes_written is None or work.link != "memory":
        return Traffic(work.bytes_read, work.bytes_written, "as counted")
    if not cache_bytes or not processors:
        return Traffic(work.bytes_read, work.bytes_written, "as counted: the cache is not known")
    try:
        kernels, why = _plan(call, work, CacheModel(cache_bytes, processors))
    except BROKEN:
        kernels, why = [KernelTraffic(work.bytes_read, work.bytes_written)], ""
    written = sum(kernel.written - left(kernel, cache_bytes) for kernel in kernels)
    return Traffic(sum(kernel.read for kernel in kernels), written, why)


def _plan(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    name = plain(call.name)
    model = _MODELS.get(name)
    if model is None and name.startswith("aten::_foreach_"):
        model = _lists
    if model is None and work.matrix_flop and name.startswith("triton_"):
        model = contractions.template
    planned = model(call, work, machine) if model is not None else None
    return planned or _once(call, work)


def _once(call: OpCall, work: Work) -> TrafficPlan:
    """Each input once, in whole sectors."""
    read, written = work.bytes_read or 0.0, work.bytes_written or 0.0
    if work.family not in ("pointwise", "reduction", "movement", "softmax"):
        return [KernelTraffic(read, written)], ""
    extra = sum(max(0.0, spread_bytes(operand) - read_bytes(operand)) for operand in tensors(call) if operand.dtype)
    return [KernelTraffic(read + extra, written)], "whole sectors of strided inputs" if extra else ""


# Rows


def _second_pass(rows_in_flight: float, row_bytes: float, machine: CacheModel) -> float:
    """The part of a row that its next pass must fetch from DRAM again. The cache is whole: no row is shared."""
    return 1 - kept(rows_in_flight * row_bytes, machine.cache_bytes)


def _row_norm(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """A pass for the statistics, a pass for the result; 128 threads a row."""
    given = tensor(call, 0)
    width = numel(integers(call, 1) or given.shape[-1:])
    each = width * item_bytes(given.dtype)
    lost = _second_pass(machine.processors * THREADS / 128, 1.5 * each, machine)
    extra = lost * read_bytes(given)
    return [KernelTraffic((work.bytes_read or 0.0) + extra, work.bytes_written or 0.0)], _rows_why(extra)


def _rows_why(extra: float) -> str:
    return "rows are read in more than one pass and don't fit the cache" if extra else ""


def _row_norm_backward(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    grad, given = tensor(call, 0), tensor(call, 1)
    width = numel(integers(call, 2) or given.shape[-1:])
    each = width * item_bytes(given.dtype)
    result = write_bytes(given.shape, given.dtype)
    both, written = read_bytes(grad, given), work.bytes_written or 0.0
    rest = max(0.0, (work.bytes_read or 0.0) - both)  # the second kernel's, for the weight's gradient
    extra = _second_pass(machine.processors * THREADS / 128, 2.5 * each, machine) * both
    return [
        KernelTraffic(both + extra, min(result, written)),
        KernelTraffic(rest, max(0.0, written - result)),
    ], _rows_why(extra)


def _softmax(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """Maximum, sum and result: three passes over a row that doesn't stay on the chip."""
    given, axis = tensor(call, 0), integer(call, 1)
    read, written = work.bytes_read or 0.0, work.bytes_written or 0.0
    size, inner = _row(given, axis)
    each = size * item_bytes(given.dtype)
    if inner == 1 and each <= ON_CHIP_BYTES:
        return [KernelTraffic(read, written)], ""
    in_flight = machine.processors * THREADS / (1 if inner > 1 else 1024)
    lost = _second_pass(min(in_flight, numel(given.shape) / size), each * (1 + 0.5 * written / read), machine)
    return [KernelTraffic(read * (1 + 2 * lost), written)], _rows_why(lost)


def _row(given: Tensor, axis: int | None) -> tuple[int, int]:
    """The size of a dimension and the elements between its neighbours in a dense tensor."""
    place = (-1 if axis is None else axis) % max(1, len(given.shape))
    return given.shape[place], numel(given.shape[place + 1 :])


def _softmax_backward(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """The sum of the gradient (times the output), then the result. Softmax stores that product first."""
    grad, output, axis = tensor(call, 0), tensor(call, 1), integer(call, 2)
    read, written = work.bytes_read or 0.0, work.bytes_written or 0.0
    size, inner = _row(output, axis)
    each = size * item_bytes(grad.dtype)
    lost = 0.0
    if inner > 1 or each > ON_CHIP_BYTES:
        in_flight = machine.processors * THREADS / (1 if inner > 1 else 512)
        lost = _second_pass(min(in_flight, numel(output.shape) / size), 2.5 * each, machine)
    main = KernelTraffic(read + lost * read_bytes(grad), written)
    if "log" in call.name or grad.dtype != output.dtype:
        return [main], _rows_why(lost)
    return [KernelTraffic(read, read_bytes(grad)), main], "the product of gradient and output is stored"


# Gathers and scatters


def _rows_taken(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """Rows at random: one that comes again is found in the cache as far as the cache holds the table."""
    table = tensor(call, 0)
    choice = plain(call.name) in ("aten::index_select", "aten::index_add_", "aten::index_add")
    axis = (integer(call, 1) or 0) % len(table.shape) if choice else 0
    indices = tensor(call, 2 if choice else 1)
    wanted, length = numel(indices.shape), table.shape[axis]
    row = numel(table.shape[axis + 1 :]) * item_bytes(table.dtype)
    outer = numel(table.shape[:axis])
    if row < FETCH_BYTES:
        taken = outer * alone(wanted, length * row, row)
    else:
        there = min(1.0, READ_SHARE * machine.cache_bytes / max(1.0, read_bytes(table)))
        distinct = length * _hit(wanted, length)
        taken = outer * row * max(distinct, wanted * (1 - there))
    read, written = read_bytes(indices) + taken, work.bytes_written or 0.0
    if "index_add" in call.name:
        read, written = read + read_bytes(tensor(call, 3)), taken
    return [KernelTraffic(read, written)], "rows at random: some come again, some twice"


def _hit(draws: float, size: float) -> float:
    """The part of `size` rows that `draws` random ones touch."""
    return 1 - math.exp(-draws / size) if size else 0.0


def _chosen(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """Single elements: `price` counts what the cache fetches and writes for each."""
    return [KernelTraffic(work.bytes_read or 0.0, work.bytes_written or 0.0)], "whole sectors of single elements"


def _embedding_backward(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """Indices are sorted, the gradient's rows summed in float32 for each index, the sums written into zeros."""
    grad, indices, rows = tensor(call, 0), tensor(call, 1), integer(call, 2)
    wanted, width, each = numel(indices.shape), grad.shape[-1], item_bytes(grad.dtype)
    if rows is None or wanted <= 3072:  # below that one kernel does it
        raise Uncounted("the small kernel")
    sums = rows * _hit(wanted, rows) * width
    sort = KernelTraffic(
        8 * wanted * 16.0, 0.0
    )  # eight passes over keys and places of 8 bytes; the writes stay in the cache
    kernels = [sort, KernelTraffic(0.0, rows * width * each), KernelTraffic(read_bytes(grad), sums * FLOAT_BYTES)]
    return [*kernels, KernelTraffic(sums * FLOAT_BYTES, sums * each)], "rows are sorted and summed in float32 in memory"


# Lists


def _lists(call: OpCall, work: Work, machine: CacheModel) -> TrafficPlan:
    """Several launches, each of which leaves its last writes in the cache."""
    lists = [argument.items for argument in call.inputs if isinstance(argument, TensorList) and argument.items]
    blocks = sum(ceil_divide(numel(item.shape), CHUNK_ELEMENTS) for item in lists[0])
    named = sum("multi_tensor_apply" in name for name in call.kernels)
    launches = named or max(1, ceil_divide(blocks, LAUNCH_BLOCKS))
    each = KernelTraffic((work.bytes_read or 0.0) / launches, (work.bytes_written or 0.0) / launches)
    return [each] * launches, f"{launches} launches" if launches > 1 else ""


_Model = Callable[[OpCall, Work, CacheModel], TrafficPlan]
_SDPA = "aten::_scaled_dot_product"
# The model of each operation; every other reads and writes once.
_MODELS: dict[str, _Model] = {
    **dict.fromkeys(MATMUL, contractions.matmul),
    **dict.fromkeys(
        ("aten::convolution", "aten::_convolution", "aten::cudnn_convolution", "aten::conv2d"), contractions.convolution
    ),
    "aten::convolution_backward": contractions.convolution_backward,
    f"{_SDPA}_flash_attention": contractions.attention,
    f"{_SDPA}_efficient_attention": contractions.attention,
    f"{_SDPA}_flash_attention_backward": contractions.flash_backward,
    f"{_SDPA}_efficient_attention_backward": contractions.efficient_backward,
    **dict.fromkeys(("aten::native_layer_norm", "aten::layer_norm", "aten::_fused_rms_norm"), _row_norm),
    **dict.fromkeys(("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward"), _row_norm_backward),
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax", "aten::softmax", "aten::log_softmax"), _softmax),
    **dict.fromkeys(("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"), _softmax_backward),
    **dict.fromkeys(("aten::embedding", "aten::index_select", "aten::index_add_", "aten::index_add"), _rows_taken),
    **dict.fromkeys(("aten::gather", "aten::scatter_", "aten::scatter", "aten::nll_loss_forward"), _chosen),
    "aten::embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_sgd_"), _lists),
}
