"""Parts of tensors, copied out, put back or differentiated: what is behind slices, diagonals and windows. No FLOP."""

from __future__ import annotations

from gobrrr.cost.arguments import integer, integers, maybe_tensor, tensor, tensors
from gobrrr.cost.build import copy, made_bytes, vector
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work


def _axis(call: OpCall, given: Tensor, place: int) -> int:
    axis = integer(call, place)
    if not given.shape:
        raise Uncounted("a part of a 0-d tensor")
    return (axis or 0) % len(given.shape)


def _taken(given: Tensor, elements: int) -> Work:
    """`elements` copied out of a tensor."""
    size = write_bytes((elements,), given.dtype)
    return copy(read=min(size, read_bytes(given)), written=size)


def _rest(given: Tensor, axis: int) -> int:
    return numel(size for index, size in enumerate(given.shape) if index != axis)


@rule("aten::slice_copy", family="movement")
def _slice(call: OpCall) -> Work:
    given = tensor(call, 0)
    axis, length = _axis(call, given, 1), 0
    size = given.shape[axis]
    start, end, step = integer(call, 2) or 0, integer(call, 3), integer(call, 4) or 1
    stop = size if end is None else end
    start, stop = (max(0, min(size, value + size if value < 0 else value)) for value in (start, stop))
    if step > 0:
        length = max(0, -(-(stop - start) // step))
    return _taken(given, length * _rest(given, axis))


@rule("aten::narrow_copy", "aten::select_copy", family="movement")
def _narrow(call: OpCall) -> Work:
    given = tensor(call, 0)
    axis = _axis(call, given, 1)
    length = integer(call, 3) if call.name == "aten::narrow_copy" else 1
    if length is None:
        raise Uncounted("the length is not recorded")
    return _taken(given, length * _rest(given, axis))


@rule("aten::diagonal_copy", family="movement")
def _diagonal(call: OpCall) -> Work:
    given = tensor(call, 0)
    if len(given.shape) < 2:
        raise Uncounted("a diagonal of fewer than 2 dimensions")
    offset, first, second = (integer(call, place) for place in (1, 2, 3))
    first, second = (first or 0) % len(given.shape), (1 if second is None else second) % len(given.shape)
    offset = offset or 0
    rows, columns = given.shape[first], given.shape[second]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    rest = numel(size for index, size in enumerate(given.shape) if index not in (first, second))
    return _taken(given, length * rest)


@rule("aten::unfold_copy", family="movement")
def _unfold(call: OpCall) -> Work:
    given, size, step = tensor(call, 0), integer(call, 2), integer(call, 3)
    if size is None or not step or step < 0:
        raise Uncounted("the window is not recorded")
    if not given.shape:
        return _taken(given, size)
    axis = _axis(call, given, 1)
    windows = max(0, (given.shape[axis] - size) // step + 1)
    return _taken(given, windows * size * _rest(given, axis))


@rule("aten::expand_copy", "aten::as_strided_copy", family="movement")
def _resized(call: OpCall) -> Work:
    given, size = tensor(call, 0), integers(call, 1)
    if size is None:
        raise Uncounted("the size is not recorded")
    if call.name == "aten::expand_copy":  # -1 keeps a dimension
        kept = (1,) * (len(size) - len(given.shape)) + given.shape
        if len(kept) != len(size):
            raise Uncounted("a size of fewer dimensions than the tensor")
        size = tuple(old if new == -1 else new for new, old in zip(size, kept, strict=True))
    return _taken(given, numel(size))


@rule("aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter", "aten::as_strided_scatter",
      family="movement")  # fmt: skip
def _put_back(call: OpCall) -> Work:
    """A clone of the first tensor, then a copy of the second into it."""
    given, source = tensor(call, 0), tensor(call, 1)
    written = write_bytes(given.shape, given.dtype) + write_bytes(source.shape, given.dtype)
    return copy(read=read_bytes(given, source), written=written)


@rule("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward", "aten::unfold_backward",
      family="movement")  # fmt: skip
def _gradient(call: OpCall) -> Work:
    """Zeros of the input's size, then the gradient copied into its part (added, where windows overlap)."""
    grad, size = tensor(call, 0), integers(call, 1)
    if size is None:
        raise Uncounted("the input's size is not recorded")
    moved = write_bytes(grad.shape, grad.dtype)
    written = write_bytes(size, grad.dtype) + moved
    if call.name != "aten::unfold_backward":
        return copy(read=read_bytes(grad), written=written)
    return vector(flop=numel(grad.shape), dtype=grad.dtype, read=read_bytes(grad) + moved, written=written)


@rule("aten::value_selecting_reduction_backward", family="movement")
def _chosen_gradient(call: OpCall) -> Work:
    grad, indices, size = tensor(call, 0), tensor(call, 2), integers(call, 3)
    if size is None:
        raise Uncounted("the input's size is not recorded")
    written = write_bytes(size, grad.dtype) + write_bytes(grad.shape, grad.dtype)
    return copy(read=read_bytes(grad, indices), written=written)


@rule("aten::diag_embed", family="movement")
def _embedded(call: OpCall) -> Work:
    given = tensor(call, 0)
    offset = integer(call, 1) or 0
    side = (given.shape[-1] if given.shape else 1) + abs(offset)
    written = write_bytes((*given.shape[:-1], side, side), given.dtype) + write_bytes(given.shape, given.dtype)
    return copy(read=read_bytes(given), written=written)


@rule("aten::col2im", family="movement")
def _col2im(call: OpCall) -> Work:
    """Overlapping windows are added: one addition an element of the columns."""
    given, size, window = tensor(call, 0), integers(call, 1), integers(call, 2)
    if not size or not window or len(given.shape) not in (2, 3):
        raise Uncounted("the output's size is not recorded")
    channels = given.shape[-2] // max(1, numel(window * (2 if len(window) == 1 else 1)))
    shape = (*given.shape[:-2], channels, *(size if len(size) == 2 else size * 2))
    written = write_bytes(shape, given.dtype)
    return vector(flop=numel(given.shape), dtype=given.dtype, read=read_bytes(given), written=written)


@rule("aten::masked_scatter", "aten::masked_scatter_backward", family="movement")
@rule("aten::_unsafe_masked_index", "aten::_unsafe_masked_index_put_accumulate", family="movement")
def _masked(call: OpCall) -> Work:
    """How many elements the mask lets through isn't recorded: all that could be moved are."""
    given = tensor(call, 0)
    made = made_bytes(call)
    written = write_bytes(given.shape, given.dtype) if made is None else made
    return copy(
        read=read_bytes(*tensors(call)), written=written, count="bounded",
        note="every element of the tensors is taken as read", fusible=False,
    )  # fmt: skip


@rule("aten::put", "aten::put_", family="movement")
def _put(call: OpCall) -> Work:
    target, index, source = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    whole = write_bytes(target.shape, target.dtype) if call.name == "aten::put" else 0.0
    moved = write_bytes(source.shape, target.dtype)
    return copy(
        read=read_bytes(index, source) + whole, written=moved + whole, count="bounded",
        note="each element is taken as written once", fusible=False,
    )  # fmt: skip


@rule("aten::_to_dense", "aten::to_padded_tensor", "aten::_jagged_to_padded_dense_forward", family="movement")
@rule("aten::_padded_dense_to_jagged_forward", "aten::_to_sparse_semi_structured", family="movement")
def _relaid(call: OpCall) -> Work:
    made = made_bytes(call)
    given = tensor(call, 0)
    if made is None:
        if call.name != "aten::_to_dense":
            raise Uncounted("the result's size is not recorded")
        made = write_bytes(given.shape, given.dtype)
    return copy(read=read_bytes(given, maybe_tensor(call, 1)), written=made, fusible=False)
