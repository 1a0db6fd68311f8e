"""Reductions, scans, sorting and the losses that are reductions: the input read once, 1 FLOP an input element."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.cost.arguments import dtype, integer, integers, maybe_tensor, number, tensor, text
from gobrrr.cost.build import copy, vector
from gobrrr.cost.dtypes import accumulated, floating
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import item_bytes, numel, read_bytes, reduced, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

INDEX = "int64"
SECTOR_BYTES = 32  # the least that DRAM is read in


def _reduce(given: Tensor, dims: Sequence[int] | None, outputs: Sequence[str], flop_per_element: float = 1.0) -> Work:
    shape = reduced(given.shape, dims)
    return vector(
        flop=flop_per_element * numel(given.shape),
        dtype=given.dtype,
        read=read_bytes(given),
        written=sum(write_bytes(shape, one) for one in outputs),
    )


def _dims(call: OpCall, place: int, least: int) -> tuple[int, ...] | None:
    """Dimensions at `place`; a call with fewer than `least` arguments is the overload that reduces all."""
    if len(call.inputs) < least:
        return None
    dims = integers(call, place)
    if dims is None and text(call, place) == "" and len(call.inputs) > least:
        raise Uncounted("the reduced dimensions are not recorded")
    return dims


@rule("aten::sum", "aten::nansum", "aten::prod", family="reduction")
def _sum(call: OpCall) -> Work:
    given = tensor(call, 0)
    # sum(x, *, dtype) has two arguments, sum(x, dims, keepdim, *, dtype) four.
    all_of_it = len(call.inputs) <= 2
    out = dtype(call, 1 if all_of_it else 3) or accumulated(given.dtype)
    return _reduce(given, None if all_of_it else integers(call, 1), [out])


@rule("aten::mean", "aten::nanmean", family="reduction")
def _mean(call: OpCall) -> Work:
    given = tensor(call, 0)
    all_of_it = len(call.inputs) <= 2
    out = dtype(call, 1 if all_of_it else 3) or floating(given.dtype)
    return _reduce(given, None if all_of_it else integers(call, 1), [out])


@rule("aten::amax", "aten::amin", family="reduction")
def _amax(call: OpCall) -> Work:
    given = tensor(call, 0)
    return _reduce(given, integers(call, 1), [given.dtype])


@rule("aten::aminmax", "aten::_aminmax", family="reduction")
def _aminmax(call: OpCall) -> Work:
    given = tensor(call, 0)
    return _reduce(given, integers(call, 1), [given.dtype] * 2, 2.0)


@rule("aten::max", "aten::min", "aten::median", "aten::nanmedian", "aten::mode", family="reduction")
def _max(call: OpCall) -> Work:
    given, other = tensor(call, 0), maybe_tensor(call, 1)
    if other is not None and len(call.inputs) == 2:  # max(x, y) is pointwise
        shape = numel(given.shape)
        return vector(
            flop=shape, dtype=given.dtype, read=read_bytes(given, other), written=write_bytes(given.shape, given.dtype)
        )
    if len(call.inputs) < 2:
        return _reduce(given, None, [given.dtype])
    return _reduce(given, integers(call, 1), [given.dtype, INDEX])


@rule("aten::argmax", "aten::argmin", family="reduction")
def _argmax(call: OpCall) -> Work:
    return _reduce(tensor(call, 0), integers(call, 1), [INDEX])


@rule("aten::all", "aten::any", family="reduction")
def _all(call: OpCall) -> Work:
    return _reduce(tensor(call, 0), integers(call, 1), ["bool"])


@rule("aten::count_nonzero", family="reduction")
def _count_nonzero(call: OpCall) -> Work:
    return _reduce(tensor(call, 0), integers(call, 1), [INDEX])


@rule("aten::var", "aten::std", "aten::var_mean", "aten::std_mean", family="reduction")
def _var(call: OpCall) -> Work:
    given = tensor(call, 0)
    outputs = [given.dtype] * (2 if call.name.endswith("_mean") else 1)
    # Welford: subtract, multiply-add for the mean, multiply-add for the square.
    return _reduce(given, integers(call, 1) if len(call.inputs) > 2 else None, outputs, 5.0)


@rule("aten::norm", "aten::linalg_vector_norm", "aten::logsumexp", "aten::_logcumsumexp", family="reduction")
def _norm(call: OpCall) -> Work:
    given = tensor(call, 0)
    dims = integers(call, 1 if call.name == "aten::logsumexp" else 2)
    return _reduce(given, dims, [floating(given.dtype)], 2.0)


@rule("aten::cumsum", "aten::cumprod", "aten::cumsum_", "aten::logcumsumexp", family="reduction")
def _scan(call: OpCall) -> Work:
    given = tensor(call, 0)
    out = dtype(call, 2) or accumulated(given.dtype)
    count = numel(given.shape)
    return vector(flop=count, dtype=given.dtype, read=read_bytes(given), written=write_bytes(given.shape, out))


@rule("aten::cummax", "aten::cummin", family="reduction")
def _scan_with_index(call: OpCall) -> Work:
    given = tensor(call, 0)
    written = write_bytes(given.shape, given.dtype) + write_bytes(given.shape, INDEX)
    return vector(flop=numel(given.shape), dtype=given.dtype, read=read_bytes(given), written=written)


@rule("aten::topk", "aten::kthvalue", family="reduction")
def _topk(call: OpCall) -> Work:
    given, chosen = tensor(call, 0), integer(call, 1)
    if chosen is None or not given.shape:
        raise Uncounted("how many are chosen is not recorded")
    axis = integer(call, 2)
    axis = -1 if axis is None else axis
    length = given.shape[axis % len(given.shape)]
    rows = numel(given.shape) // length if length else 0
    each = 1 if call.name == "aten::kthvalue" else max(0, min(chosen, length))
    written = rows * each * (item_bytes(given.dtype) + item_bytes(INDEX))
    return copy(read=read_bytes(given), written=written, count="bounded", note="one pass over the input", fusible=False)


@rule("aten::sort", "aten::argsort", "aten::msort", family="reduction")
def _sort(call: OpCall) -> Work:
    given = tensor(call, 0)
    values = 0.0 if call.name == "aten::argsort" else write_bytes(given.shape, given.dtype)
    return copy(
        read=read_bytes(given),
        written=values + write_bytes(given.shape, INDEX),
        count="bounded",
        note="one pass: a radix sort makes one for each few bits of the key",
        fusible=False,
    )


@rule("aten::nll_loss_forward", "aten::nll_loss", "aten::nll_loss2d_forward", family="reduction")
def _nll_loss(call: OpCall) -> Work:
    scores, target = tensor(call, 0), tensor(call, 1)
    rows = numel(target.shape)
    # One score a row, wherever it lies: a sector of DRAM each.
    per_row = min(SECTOR_BYTES, numel(scores.shape) / max(rows, 1) * item_bytes(scores.dtype))
    reduces = number(call, 3) != 0.0
    return vector(
        flop=rows,
        dtype=scores.dtype,
        read=rows * per_row + read_bytes(target, maybe_tensor(call, 2)),
        written=write_bytes(() if reduces else target.shape, scores.dtype),
        count="bounded",
        note=f"one sector of {SECTOR_BYTES} bytes is read for each target",
    )


@rule("aten::nll_loss_backward", "aten::nll_loss2d_backward", family="reduction")
def _nll_loss_backward(call: OpCall) -> Work:
    scores, target = tensor(call, 1), tensor(call, 2)
    rows = numel(target.shape)
    return vector(
        flop=rows,
        dtype=scores.dtype,
        read=read_bytes(tensor(call, 0), target, maybe_tensor(call, 3)),
        written=rows * min(SECTOR_BYTES, numel(scores.shape) / max(rows, 1) * item_bytes(scores.dtype)),
        count="bounded",
        note="the gradient's zeros are written by another op (aten::zero_)",
    )


@rule("aten::cross_entropy_loss", family="reduction")
def _cross_entropy(call: OpCall) -> Work:
    """Composite: log-softmax (read, write), then one score a row."""
    scores, target = tensor(call, 0), tensor(call, 1)
    count = numel(scores.shape)
    return vector(
        flop=5 * count,
        dtype=scores.dtype,
        read=read_bytes(scores, target),
        written=write_bytes(scores.shape, scores.dtype),
        count="bounded",
        note="a log-softmax and the choice of one score a row",
    )


@rule("aten::bincount", "aten::histc", family="reduction")
def _histogram(call: OpCall) -> Work:
    given = tensor(call, 0)
    bins = integer(call, 2 if call.name == "aten::bincount" else 1) or 0
    return vector(
        flop=numel(given.shape),
        dtype=given.dtype,
        read=read_bytes(given, maybe_tensor(call, 1)),
        written=write_bytes((max(bins, 0),), INDEX),
        count="bounded",
        note="the passes that find the range are not counted",
        fusible=False,
    )


@rule("aten::unique", "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim", family="reduction")
def _unique(call: OpCall) -> Work:
    given = tensor(call, 0)
    return copy(
        read=read_bytes(given), written=0.0, count="bounded", note="one read; its sort and result not counted",
        fusible=False,
    )  # fmt: skip


@rule("aten::searchsorted", "aten::bucketize", family="reduction")
def _search(call: OpCall) -> Work:
    sought = maybe_tensor(call, 1) if call.name == "aten::searchsorted" else tensor(call, 0)
    if sought is None:
        raise Uncounted("what is searched for is not a recorded tensor")
    edges = tensor(call, 0 if call.name == "aten::searchsorted" else 1)
    return copy(
        read=read_bytes(sought, edges), written=write_bytes(sought.shape, INDEX), count="bounded",
        note="the sorted sequence is read once",
    )  # fmt: skip
