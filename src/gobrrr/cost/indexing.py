"""Gathers, scatters and choices: what depends on index values is bounded, each row taken as touched once.

Elements or rows smaller than what DRAM gives at once (gobrrr.cost.cache.FETCH_BYTES; SECTOR_BYTES for what is written)
are taken as lying at random: each moves a piece, which several may share. Neighbours in order move less.
"""

from __future__ import annotations

import re

import msgspec

from gobrrr.cost.arguments import argument, flag, integer, maybe_tensor, tensor
from gobrrr.cost.build import copy, made_bytes, vector
from gobrrr.cost.cache import FETCH_BYTES, SECTOR_BYTES, alone
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import broadcast, item_bytes, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, TensorList, Work

_ROWS = "each row is taken as read once: which rows, only the indices tell"
"""The note of a count of rows."""


@rule("aten::embedding", family="movement")
def _embedding(call: OpCall) -> Work:
    table, indices = tensor(call, 0, 2), tensor(call, 1)
    return _rows_of(table, indices, 0)


@rule("aten::index_select", family="movement")
def _index_select(call: OpCall) -> Work:
    axis = integer(call, 1)
    if axis is None:
        raise Uncounted("the dimension is not recorded")
    return _rows_of(tensor(call, 0), tensor(call, 2), axis)


def _rows_of(table: Tensor, indices: Tensor, axis: int) -> Work:
    """Rows of a table: no more are read than there are indices, nor than the table has."""
    length = table.shape[axis % len(table.shape)] if table.shape else 1
    each, wanted = item_bytes(table.dtype), numel(indices.shape)
    outer = numel(table.shape[: axis % len(table.shape)]) if table.shape else 1
    row = (numel(table.shape) // (length * outer) if length and outer else 0) * each
    taken = outer * alone(wanted, length * row, row)
    return copy(read=taken + read_bytes(indices), written=wanted * outer * row, count="bounded", note=_ROWS)


@rule("aten::embedding_dense_backward", "aten::embedding_backward", family="movement")
def _embedding_backward(call: OpCall) -> Work:
    grad, indices = tensor(call, 0), tensor(call, 1)
    table = integer(call, 2)
    rows = numel(indices.shape) if table is None else min(numel(indices.shape), max(table, 0))
    width = grad.shape[-1] if grad.shape else 1
    touched = rows * width * item_bytes(grad.dtype)
    zeros = made_bytes(call) or 0.0
    note = "rows are added into once"
    return vector(
        flop=numel(grad.shape),
        dtype=grad.dtype,
        read=read_bytes(grad, indices) + touched,
        written=touched + zeros,
        count="bounded",
        note=note if zeros else f"{note}; the gradient's zeros are written by another op",
        fusible=False,
    )


@rule("aten::_embedding_bag", "aten::_embedding_bag_forward_only", family="movement")
def _embedding_bag(call: OpCall) -> Work:
    """One addition an element of each row that is looked up, two with weights a sample; 4 outputs, 3 of indices."""
    table, indices, offsets = tensor(call, 0, 2), tensor(call, 1), tensor(call, 2)
    weights, made = maybe_tensor(call, 6), made_bytes(call)
    row = table.shape[1] * item_bytes(table.dtype)
    bags = max(0, numel(offsets.shape) - bool(flag(call, 7)))
    read = min(numel(indices.shape), table.shape[0]) * row + read_bytes(indices, offsets, weights)
    return vector(
        flop=numel(indices.shape) * table.shape[1] * (1 if weights is None else 2),
        dtype=table.dtype,
        read=read,
        written=bags * row + 2 * write_bytes((bags,), "int64") if made is None else made,
        count="bounded",
        note=_ROWS,
        fusible=False,
    )


@rule("aten::_embedding_bag_backward", "aten::_embedding_bag_dense_backward", family="movement")
def _embedding_bag_backward(call: OpCall) -> Work:
    """Each bag's gradient added into the rows that it took; (..., number of rows) at 6 and 5."""
    grad, indices = tensor(call, 0, 2), tensor(call, 1)
    rows = integer(call, 6 if call.name.endswith("bag_backward") else 5)
    wanted = numel(indices.shape)
    touched = wanted if rows is None else min(wanted, max(rows, 0))
    size, zeros = touched * grad.shape[1] * item_bytes(grad.dtype), made_bytes(call) or 0.0
    return vector(
        flop=wanted * grad.shape[1],
        dtype=grad.dtype,
        read=read_bytes(grad, indices) + size,
        written=size + zeros,
        count="bounded",
        note="rows are added into once" + ("" if zeros else "; the gradient's zeros are written by another op"),
        fusible=False,
    )


@rule("aten::_embedding_bag_per_sample_weights_backward", family="movement")
def _sample_weights_backward(call: OpCall) -> Work:
    """A dot product of a bag's gradient with each row that it took."""
    grad, table, indices = tensor(call, 0, 2), tensor(call, 1, 2), tensor(call, 2)
    wanted = numel(indices.shape)
    rows = min(wanted, table.shape[0]) * table.shape[1] * item_bytes(table.dtype)
    return vector(
        flop=2 * wanted * table.shape[1],
        dtype=grad.dtype,
        read=read_bytes(grad, indices) + rows,
        written=write_bytes((wanted,), grad.dtype),
        count="bounded",
        note=_ROWS,
        fusible=False,
    )


@rule("aten::embedding_renorm_", "aten::embedding_renorm", family="movement")
def _renorm(call: OpCall) -> Work:
    table, indices = tensor(call, 0, 2), tensor(call, 1)
    rows = min(numel(indices.shape), table.shape[0])
    size = rows * table.shape[1] * item_bytes(table.dtype)
    return vector(
        flop=3 * rows * table.shape[1], dtype=table.dtype, read=size + read_bytes(indices), written=size,
        count="bounded", note="every row is taken as too long", fusible=False,
    )  # fmt: skip


_ALONE = "elements are taken as lying at random: neighbours in order move less"
"""The note of a count of single elements."""


def _run(given: Tensor, index: Tensor, axis: int | None) -> tuple[int, int, int]:
    """(groups, runs chosen in a group, elements of a run) of a gather or scatter along a dimension.

    An index that is the same along the inner dimensions (expanded: stride 0) chooses whole runs of them; otherwise
    every element is chosen alone, among those of its row where the dimension is the last one, else among all.
    """
    wanted = numel(index.shape)
    if axis is None or not given.shape or len(index.shape) != len(given.shape):
        return 1, wanted, 1
    place = axis % len(given.shape)
    inner = numel(index.shape[place + 1 :])
    if inner > 1:
        strides = index.strides or ()
        expanded = len(strides) == len(index.shape) and not any(strides[place + 1 :])
        return (1, wanted // inner, inner) if expanded else (1, wanted, 1)
    groups = numel(index.shape[:place])
    return groups, wanted // max(groups, 1), 1


def _moved(given: Tensor, index: Tensor, axis: int | None, least: float) -> float:
    """Bytes of `given` that move for the elements that `index` chooses, in pieces of `least`."""
    groups, chosen, run = _run(given, index, axis)
    each = item_bytes(given.dtype)
    return groups * alone(chosen, numel(given.shape) / max(groups, 1) * each, run * each, least)


@rule("aten::gather", "aten::take_along_dim", "aten::take", family="movement")
def _gather(call: OpCall) -> Work:
    given = tensor(call, 0)
    single = maybe_tensor(call, 1)
    index = single if single is not None else tensor(call, 2)
    axis = integer(call, 1) if single is None else integer(call, 2)
    return copy(
        read=_moved(given, index, axis, FETCH_BYTES) + read_bytes(index),
        written=numel(index.shape) * item_bytes(given.dtype),
        count="bounded",
        note=_ALONE,
        fusible=False,
    )


@rule("aten::gather_backward", "aten::scatter_", "aten::scatter_add_", "aten::scatter_add", family="movement")
@rule("aten::scatter", "aten::scatter_reduce_", "aten::scatter_reduce", family="movement")
def _scatter(call: OpCall) -> Work:
    """The sectors of the chosen elements are fetched, changed in part and written back; whole ones only written."""
    target, index = tensor(call, 0), tensor(call, 2)
    source, axis = maybe_tensor(call, 3), integer(call, 1)
    count = numel(index.shape)
    adds = "add" in call.name or "reduce" in call.name
    touched = _moved(target, index, axis, SECTOR_BYTES)
    parts = adds or _run(target, index, axis)[2] * item_bytes(target.dtype) < SECTOR_BYTES
    given = count * item_bytes(source.dtype) if source is not None else 0.0
    cloned = _cloned(call, target)
    return vector(
        flop=count if adds else 0.0,
        dtype=target.dtype,
        read=read_bytes(index) + given + (touched if parts else 0.0) + cloned,
        written=touched + cloned,
        count="bounded",
        note=_ALONE,
        fusible=False,
    )


def _cloned(call: OpCall, target: Tensor) -> float:
    """Bytes that a form that isn't in place copies first: a trace records that copy as an op of its own."""
    if call.outputs is None or call.name.endswith("_"):
        return 0.0
    return write_bytes(target.shape, target.dtype)


@rule("aten::index_add_", "aten::index_add", "aten::index_copy_", "aten::index_reduce_", family="movement")
@rule("aten::index_copy", "aten::index_reduce", family="movement")
def _index_add(call: OpCall) -> Work:
    target, index, source = tensor(call, 0), tensor(call, 2), tensor(call, 3)
    moved, cloned = write_bytes(source.shape, source.dtype), _cloned(call, target)
    adds = "copy" not in call.name
    return vector(
        flop=numel(source.shape) if adds else 0.0,
        dtype=target.dtype,
        read=read_bytes(index, source) + (moved if adds else 0.0) + cloned,
        written=moved + cloned,
        count="bounded",
        note="each row is taken as written once",
        fusible=False,
    )


@rule("aten::index_fill_", "aten::index_fill", family="movement")
def _index_fill(call: OpCall) -> Work:
    target, axis, index = tensor(call, 0), integer(call, 1), tensor(call, 2)
    if axis is None:
        raise Uncounted("the dimension is not recorded")
    length = target.shape[axis % len(target.shape)] if target.shape else 1
    row = numel(target.shape) // length if length else 0
    written, cloned = numel(index.shape) * row * item_bytes(target.dtype), _cloned(call, target)
    return copy(
        read=read_bytes(index) + cloned, written=written + cloned, count="bounded",
        note="each row is taken as written once",
    )  # fmt: skip


@rule("aten::index_put_", "aten::_index_put_impl_", "aten::index_put", "aten::_unsafe_index_put", family="movement")
@rule("aten::_index_put_impl", family="movement")
def _index_put(call: OpCall) -> Work:
    target, values = tensor(call, 0), tensor(call, 2)
    indices = _recorded(call)
    count, how = _named(target, values, indices)
    each, cloned = item_bytes(target.dtype), _cloned(call, target)
    added = count if flag(call, 3) else 0
    return vector(
        flop=added,
        dtype=target.dtype,
        read=read_bytes(values, *indices) + added * each + cloned,
        written=count * each + cloned,
        count="bounded",
        note=how,
        fusible=False,
    )


def _recorded(call: OpCall) -> tuple[Tensor, ...]:
    value = argument(call, 1)
    if isinstance(value, Tensor):
        return (value,)
    return value.items if isinstance(value, TensorList) else ()


def _named(target: Tensor, values: Tensor, indices: tuple[Tensor, ...]) -> tuple[int, str]:
    """How many elements the indices name, and how that is known: values that are broadcast don't tell it alone."""
    if indices and all(index.dtype not in ("bool", "uint8") for index in indices):
        # Each index takes one dimension's place; which one doesn't matter where the sizes are the first ones'.
        rest = numel(target.shape[len(indices) :])
        named = numel(broadcast(*(index.shape for index in indices))) * rest
        return max(named, numel(values.shape)), "the indexed dimensions are taken as the first ones"
    if numel(values.shape) == 1:
        if not indices:
            raise Uncounted("how many elements the indices name is not recorded")
        return numel(target.shape), "a mask: at most all elements are written"
    return numel(values.shape), "the indices are not recorded: each value is taken as written once"


@rule("aten::index", "aten::_unsafe_index", family="movement")
def _index(call: OpCall) -> Work:
    table = tensor(call, 0)
    made = made_bytes(call)
    if made is not None:
        indices = _recorded(call)
        run = _indexed_run(table, indices, made)
        picked = alone(made / run if run else 0.0, write_bytes(table.shape, table.dtype), run)
        return copy(read=picked + read_bytes(*indices), written=made, count="bounded", note=_ROWS)
    single = maybe_tensor(call, 1)
    indices = (single,) if single is not None else _index_list(call)
    if len(indices) != 1 or indices[0].dtype == "bool":
        raise Uncounted("how many elements the indices name is not recorded")
    return _rows_of(table, indices[0], 0)


def _indexed_run(table: Tensor, indices: tuple[Tensor, ...], made: float) -> float:
    """Bytes that lie together for each choice: the dimensions behind the indexed ones, taken as the first ones.

    All that is made, where the sizes say that it is otherwise (a dimension in between is kept whole) or a mask chooses.
    """
    if not indices or any(index.dtype in ("bool", "uint8") for index in indices):
        return made
    run = numel(table.shape[len(indices) :]) * item_bytes(table.dtype)
    fits = numel(broadcast(*(index.shape for index in indices))) * run == made
    return run if fits else made


def _index_list(call: OpCall) -> tuple[Tensor, ...]:
    value = argument(call, 1)
    if not isinstance(value, TensorList) or not value.items:
        raise Uncounted("the indices are not recorded")
    return value.items


_GATHER = re.compile(r"index_elementwise_kernel<(\d+), (\d+)")
"""Threads of a block, and elements of a thread."""


def by_blocks(call: OpCall, blocks: int | None) -> Work | None:
    """aten::index of unrecorded indices: the result has no more elements than the launched threads handle."""
    if call.name != "aten::index" or blocks is None or blocks <= 0:
        return None
    table = maybe_tensor(call, 0)
    if table is None or not table.dtype:
        return None
    found = next((match for name in call.kernels if (match := _GATHER.search(name))), None)
    if found is not None:
        wanted = blocks * int(found.group(1)) * int(found.group(2))
    elif any("vectorized_gather_kernel" in name for name in call.kernels):
        wanted = blocks * numel(table.shape[1:])  # a block gathers one row, or a part of it
    else:
        return None
    each = item_bytes(table.dtype)
    read = min(wanted, numel(table.shape)) * each
    note = "the indices are not recorded: at most as many elements as the launched threads handle"
    work = copy(read=read, written=wanted * each, count="bounded", note=note, fusible=False)
    return msgspec.structs.replace(work, by_name=True)


@rule("aten::nonzero", "aten::masked_select", "aten::nonzero_static", "aten::masked_scatter_", family="movement")
def _selected(call: OpCall) -> Work:
    given = [operand for operand in (maybe_tensor(call, 0), maybe_tensor(call, 1)) if operand is not None]
    if not given:
        tensor(call, 0)
    made = made_bytes(call)
    note = "the result's size is not recorded" if made is None else "one pass over the input"
    return copy(read=read_bytes(*given), written=made or 0.0, count="bounded", note=note, fusible=False)
