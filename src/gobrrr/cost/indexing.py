"""Gathers, scatters and choices: what depends on index values is bounded, each row taken as touched once."""

from __future__ import annotations

import re

import msgspec

from gobrrr.cost.arguments import argument, integer, maybe_tensor, tensor
from gobrrr.cost.build import copy
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import item_bytes, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, TensorList, Work

_ROWS = "each row is taken as read once: which rows, only the indices tell"


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
    if not table.shape:
        raise Uncounted("rows of a 0-d tensor")
    length = table.shape[axis % len(table.shape)]
    row = (numel(table.shape) // length if length else 0) * item_bytes(table.dtype)
    wanted = numel(indices.shape)
    return copy(read=min(wanted, length) * row + read_bytes(indices), written=wanted * row, count="bounded", note=_ROWS)


@rule("aten::embedding_dense_backward", "aten::embedding_backward", family="movement")
def _embedding_backward(call: OpCall) -> Work:
    grad, indices = tensor(call, 0), tensor(call, 1)
    table = integer(call, 2)
    rows = numel(indices.shape) if table is None else min(numel(indices.shape), max(table, 0))
    width = grad.shape[-1] if grad.shape else 1
    touched = rows * width * item_bytes(grad.dtype)
    return copy(
        read=read_bytes(grad, indices) + touched,
        written=touched,
        count="bounded",
        note="rows are added into once; the gradient's zeros are written by another op",
        fusible=False,
    )


@rule("aten::_embedding_bag", "aten::_embedding_bag_forward_only", family="movement")
def _embedding_bag(call: OpCall) -> Work:
    table, indices, offsets = tensor(call, 0, 2), tensor(call, 1), tensor(call, 2)
    row = table.shape[1] * item_bytes(table.dtype)
    read = min(numel(indices.shape), table.shape[0]) * row + read_bytes(indices, offsets)
    return copy(read=read, written=numel(offsets.shape) * row, count="bounded", note=_ROWS)


@rule("aten::gather", "aten::take_along_dim", "aten::take", family="movement")
def _gather(call: OpCall) -> Work:
    given = tensor(call, 0)
    index = tensor(call, 1 if maybe_tensor(call, 1) is not None else 2)
    wanted = numel(index.shape)
    each = item_bytes(given.dtype)
    return copy(
        read=min(wanted, numel(given.shape)) * each + read_bytes(index),
        written=wanted * each,
        count="bounded",
        note="each element is taken as read once",
        fusible=False,
    )


@rule("aten::gather_backward", "aten::scatter_", "aten::scatter_add_", "aten::scatter_add", family="movement")
@rule("aten::scatter", "aten::scatter_reduce_", "aten::scatter_reduce", family="movement")
def _scatter(call: OpCall) -> Work:
    target, index = tensor(call, 0), tensor(call, 2)
    source = maybe_tensor(call, 3)
    count = numel(index.shape)
    each = item_bytes(target.dtype)
    added = count * each if "add" in call.name or "reduce" in call.name else 0.0
    given = count * item_bytes(source.dtype) if source is not None else 0.0
    return copy(
        read=read_bytes(index) + given + added,
        written=count * each,
        count="bounded",
        note="each element is taken as written once",
        fusible=False,
    )


@rule("aten::index_add_", "aten::index_add", "aten::index_copy_", "aten::index_reduce_", family="movement")
def _index_add(call: OpCall) -> Work:
    index, source = tensor(call, 2), tensor(call, 3)
    moved = write_bytes(source.shape, source.dtype)
    read = read_bytes(index, source) + (0.0 if "copy" in call.name else moved)
    return copy(read=read, written=moved, count="bounded", note="each row is taken as written once", fusible=False)


@rule("aten::index_fill_", "aten::index_fill", family="movement")
def _index_fill(call: OpCall) -> Work:
    target, axis, index = tensor(call, 0), integer(call, 1), tensor(call, 2)
    if axis is None or not target.shape:
        raise Uncounted("the dimension is not recorded")
    length = target.shape[axis % len(target.shape)]
    row = numel(target.shape) // length if length else 0
    written = numel(index.shape) * row * item_bytes(target.dtype)
    return copy(read=read_bytes(index), written=written, count="bounded", note="each row is taken as written once")


@rule("aten::index_put_", "aten::_index_put_impl_", "aten::index_put", family="movement")
def _index_put(call: OpCall) -> Work:
    target, values = tensor(call, 0), tensor(call, 2)
    if numel(values.shape) == 1:
        raise Uncounted("how many elements the indices name is not recorded")
    moved = write_bytes(values.shape, target.dtype)
    return copy(
        read=read_bytes(values), written=moved, count="bounded",
        note="the indices are not recorded: each value is taken as written once", fusible=False,
    )  # fmt: skip


@rule("aten::index", "aten::_unsafe_index", family="movement")
def _index(call: OpCall) -> Work:
    table = tensor(call, 0)
    single = maybe_tensor(call, 1)
    indices = (single,) if single is not None else _index_list(call)
    if len(indices) != 1 or indices[0].dtype == "bool":
        raise Uncounted("how many elements the indices name is not recorded")
    return _rows_of(table, indices[0], 0)


def _index_list(call: OpCall) -> tuple[Tensor, ...]:
    value = argument(call, 1)
    if not isinstance(value, TensorList) or not value.items:
        raise Uncounted("the indices are not recorded")
    return value.items


_GATHER = re.compile(r"index_elementwise_kernel<(\d+), (\d+)")


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
    given = [one for one in (maybe_tensor(call, 0), maybe_tensor(call, 1)) if one is not None]
    if not given:
        tensor(call, 0)
    return copy(
        read=read_bytes(*given), written=0.0, count="bounded", note="the result's size is not recorded", fusible=False
    )
