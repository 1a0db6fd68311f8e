"""Reductions, scans, sorting and the losses that are reductions: the input read once, 1 FLOP an input element."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.cost.arguments import dtype, flag, integer, integers, is_list, maybe_tensor, number, tensor, tensors
from gobrrr.cost.build import copy, elementwise, made_bytes, vector
from gobrrr.cost.cache import FETCH_BYTES, SECTOR_BYTES, alone
from gobrrr.cost.dtypes import accumulated, floating, promote
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import item_bytes, numel, read_bytes, reduced, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

INDEX_TYPE = "int64"
"""The type of positions: what argmax returns."""
_REAL = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
"""The type of a norm or an absolute value."""


def _reduce(given: Tensor, dims: Sequence[int] | None, outputs: Sequence[str], flop_per_element: float = 1.0) -> Work:
    shape = reduced(given.shape, dims)
    return vector(
        flop=flop_per_element * numel(given.shape),
        dtype=given.dtype,
        read=read_bytes(given),
        written=sum(write_bytes(shape, output) for output in outputs),
    )


def _reduces_all(call: OpCall) -> bool:
    """sum(x, *, dtype) has two arguments, sum(x, dims, keepdim, *, dtype) four; left-off defaults leave a list."""
    return len(call.inputs) <= 2 and not is_list(call, 1)


@rule("aten::sum", "aten::nansum", "aten::prod", family="reduction")
def _sum(call: OpCall) -> Work:
    given = tensor(call, 0)
    all_of_it = _reduces_all(call)
    out = dtype(call, 1 if all_of_it else 3) or accumulated(given.dtype)
    return _reduce(given, None if all_of_it else integers(call, 1), [out])


@rule("aten::mean", "aten::nanmean", family="reduction")
def _mean(call: OpCall) -> Work:
    given = tensor(call, 0)
    all_of_it = _reduces_all(call)
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
    if other is not None and call.name in ("aten::max", "aten::min"):  # max(x, y) is pointwise
        return elementwise([given, other], promote([given, other]))
    if len(call.inputs) < 2:
        return _reduce(given, None, [given.dtype])
    return _reduce(given, integers(call, 1), [given.dtype, INDEX_TYPE])


@rule("aten::hash_tensor", family="reduction")
def _hash(call: OpCall) -> Work:
    given = tensor(call, 0)
    return _reduce(given, integers(call, 1), ["uint64"])


@rule("aten::equal", "aten::_is_all_true", "aten::_is_any_true", family="reduction")
def _whole(call: OpCall) -> Work:
    """One bool of all elements; the first difference may end it."""
    given = [operand for operand in (tensor(call, 0), maybe_tensor(call, 1)) if operand is not None]
    return vector(
        flop=numel(given[0].shape), dtype=given[0].dtype, read=read_bytes(*given), written=write_bytes((), "bool"),
        count="bounded", note="all elements are taken as compared",
    )  # fmt: skip


@rule("aten::argmax", "aten::argmin", family="reduction")
def _argmax(call: OpCall) -> Work:
    return _reduce(tensor(call, 0), integers(call, 1), [INDEX_TYPE])


@rule("aten::all", "aten::any", family="reduction")
def _all(call: OpCall) -> Work:
    return _reduce(tensor(call, 0), integers(call, 1), ["bool"])


@rule("aten::count_nonzero", family="reduction")
def _count_nonzero(call: OpCall) -> Work:
    return _reduce(tensor(call, 0), integers(call, 1), [INDEX_TYPE])


@rule("aten::var", "aten::std", "aten::var_mean", "aten::std_mean", family="reduction")
def _var(call: OpCall) -> Work:
    given = tensor(call, 0)
    real = _REAL.get(given.dtype, given.dtype)
    outputs = [real] + ([given.dtype] if call.name.endswith("_mean") else [])
    # Welford: subtract, multiply-add for the mean, multiply-add for the square.
    dims = integers(call, 1) if len(call.inputs) > 2 or is_list(call, 1) else None
    return _reduce(given, dims, outputs, 5.0)


@rule("aten::norm", "aten::linalg_vector_norm", "aten::linalg__powsum", "aten::native_norm", family="reduction")
def _norm(call: OpCall) -> Work:
    """(self, p, dims, keepdim, dtype): a power and a sum an element."""
    given = tensor(call, 0)
    out = dtype(call, 4) or floating(_REAL.get(given.dtype, given.dtype))
    return _reduce(given, integers(call, 2), [out], 2.0)


@rule("aten::logsumexp", family="reduction")
def _logsumexp(call: OpCall) -> Work:
    """The maximum, a difference, an exponential and the sum."""
    given = tensor(call, 0)
    return _reduce(given, integers(call, 1), [floating(given.dtype)], 4.0)


@rule("aten::cumsum", "aten::cumprod", "aten::cumsum_", "aten::cumprod_", family="reduction")
@rule("aten::logcumsumexp", "aten::_logcumsumexp", family="reduction")
def _scan(call: OpCall) -> Work:
    """One addition (or product) an element; a log-sum-exp takes 4."""
    given = tensor(call, 0)
    in_place, logs = call.name.endswith("_"), "logcumsumexp" in call.name
    out = given.dtype if in_place or logs else dtype(call, 2) or accumulated(given.dtype)
    count = numel(given.shape) * (4 if logs else 1)
    return vector(flop=count, dtype=given.dtype, read=read_bytes(given), written=write_bytes(given.shape, out))


@rule("aten::cummax", "aten::cummin", "aten::_cummax_helper", "aten::_cummin_helper", family="reduction")
def _scan_with_index(call: OpCall) -> Work:
    given = tensor(call, 0)
    written = write_bytes(given.shape, given.dtype) + write_bytes(given.shape, INDEX_TYPE)
    return vector(flop=numel(given.shape), dtype=given.dtype, read=read_bytes(given), written=written)


@rule("aten::topk", "aten::kthvalue", family="reduction")
def _topk(call: OpCall) -> Work:
    given, chosen = tensor(call, 0), integer(call, 1)
    if chosen is None:
        raise Uncounted("how many are chosen is not recorded")
    axis = integer(call, 2)
    axis = -1 if axis is None else axis
    length = given.shape[axis % len(given.shape)] if given.shape else 1
    rows = numel(given.shape) // length if length else 0
    each = 1 if call.name == "aten::kthvalue" else max(0, min(chosen, length))
    written = rows * each * (item_bytes(given.dtype) + item_bytes(INDEX_TYPE))
    return copy(read=read_bytes(given), written=written, count="bounded", note="one pass over the input", fusible=False)


@rule("aten::sort", "aten::argsort", "aten::msort", family="reduction")
def _sort(call: OpCall) -> Work:
    given = tensor(call, 0)
    values = 0.0 if call.name == "aten::argsort" else write_bytes(given.shape, given.dtype)
    return copy(
        read=read_bytes(given),
        written=values + write_bytes(given.shape, INDEX_TYPE),
        count="bounded",
        note="one pass: a radix sort makes one for each few bits of the key",
        fusible=False,
    )


def _chosen_bytes(scores: Tensor, rows: int, least: float) -> float:
    """Bytes that move for one score a row: (N, C) or channels last, a row's lie together; else an image's do."""
    inner = numel(scores.shape[2:])
    together = inner if scores.strides is None or scores.strides[1:2] != (1,) else 1
    each = item_bytes(scores.dtype)
    groups = rows / max(together, 1)
    return groups * alone(together, numel(scores.shape[1:2]) * together * each, each, least)


@rule("aten::nll_loss_forward", "aten::nll_loss", "aten::nll_loss2d_forward", family="reduction")
def _nll_loss(call: OpCall) -> Work:
    scores, target = tensor(call, 0), tensor(call, 1)
    rows = numel(target.shape)
    reduces = number(call, 3) != 0.0
    total = write_bytes((), scores.dtype) if "forward" in call.name else 0.0  # the sum of the weights
    return vector(
        flop=rows,
        dtype=scores.dtype,
        read=_chosen_bytes(scores, rows, FETCH_BYTES) + read_bytes(target, maybe_tensor(call, 2)),
        written=write_bytes(() if reduces else target.shape, scores.dtype) + total,
        count="bounded",
        note=f"one score a target, wherever it lies: {FETCH_BYTES} bytes are fetched for it",
    )


@rule("aten::nll_loss_backward", "aten::nll_loss2d_backward", family="reduction")
def _nll_loss_backward(call: OpCall) -> Work:
    scores, target = tensor(call, 1), tensor(call, 2)
    rows = numel(target.shape)
    zeros = 0.0 if call.outputs is None else write_bytes(scores.shape, scores.dtype)
    return vector(
        flop=rows,
        dtype=scores.dtype,
        read=read_bytes(tensor(call, 0), target, maybe_tensor(call, 3)),
        written=_chosen_bytes(scores, rows, SECTOR_BYTES) + zeros,
        count="bounded",
        note="" if zeros else "the gradient's zeros are written by another op (aten::zero_)",
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


@rule("aten::bincount", "aten::histc", "aten::histogram", "aten::_histogramdd_from_bin_cts", family="reduction")
@rule("aten::_histogramdd_from_bin_tensors", "aten::_histogramdd_bin_edges", family="reduction")
def _histogram(call: OpCall) -> Work:
    given, made = tensor(call, 0), made_bytes(call)
    if made is None:
        bins = integer(call, 2 if call.name == "aten::bincount" else 1) or 0
        made = write_bytes((max(bins, 0),), INDEX_TYPE if call.name == "aten::bincount" else given.dtype)
    return vector(
        flop=numel(given.shape),
        dtype=given.dtype,
        read=read_bytes(given, maybe_tensor(call, 1)),
        written=made,
        count="bounded",
        note="the passes that find the range are not counted",
        fusible=False,
    )


@rule("aten::unique", "aten::_unique", "aten::_unique2", "aten::unique_dim", family="reduction")
@rule("aten::unique_consecutive", "aten::unique_dim_consecutive", family="reduction")
def _unique(call: OpCall) -> Work:
    given, made = tensor(call, 0), made_bytes(call)
    note = "one read; its sort" + (" and result are" if made is None else " is") + " not counted"
    return copy(read=read_bytes(given), written=made or 0.0, count="bounded", note=note, fusible=False)


@rule("aten::segment_reduce", "aten::_segment_reduce_backward", "aten::renorm", "aten::renorm_", family="reduction")
@rule("aten::_nested_sum_backward", "aten::_sparse_sum", family="reduction")
def _segments(call: OpCall) -> Work:
    """A reduction whose output depends on values: its inputs once, 2 FLOP an element of the largest."""
    given, made = list(tensors(call)), made_bytes(call)
    first = tensor(call, 0)
    largest = max(given, key=lambda operand: numel(operand.shape))
    return vector(
        flop=2 * numel(largest.shape),
        dtype=first.dtype,
        read=read_bytes(*given),
        written=write_bytes(first.shape, first.dtype) if made is None else made,
        count="bounded",
        note="every tensor once",
        fusible=False,
    )


@rule("aten::searchsorted", "aten::bucketize", family="reduction")
def _search(call: OpCall) -> Work:
    sought = maybe_tensor(call, 1) if call.name == "aten::searchsorted" else tensor(call, 0)
    if sought is None:
        raise Uncounted("what is searched for is not a recorded tensor")
    edges = tensor(call, 0 if call.name == "aten::searchsorted" else 1)
    kind = "int32" if flag(call, 2) else INDEX_TYPE
    return copy(
        read=read_bytes(sought, edges), written=write_bytes(sought.shape, kind), count="bounded",
        note="the sorted sequence is read once",
    )  # fmt: skip
