"""Data movement: copies, joins and fills, and the views that move nothing. No FLOP."""

from __future__ import annotations

from gobrrr.cost.arguments import (
    dtype,
    integer,
    integers,
    number,
    tensor,
    tensor_list,
    tensors,
)
from gobrrr.cost.build import VIEW, copy
from gobrrr.cost.kernels import copy_direction
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import ceil_divide, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Work


def by_events(call: OpCall) -> Work | None:
    """Work from what the copy events moved, when the op (or the event itself) is nothing but copies and sets."""
    names = call.kernels or (call.name,)
    directions = {copy_direction(name) for name in names}
    if call.copied_bytes is None or call.copied_bytes < 0 or "" in directions:
        return None
    moved = float(call.copied_bytes)
    if len(directions) > 1:
        directions.discard("set")
    if directions == {"set"}:
        return Work(count="exact", vector_flop=0.0, bytes_read=0.0, bytes_written=moved, family="movement")
    if directions <= {"HtoD", "DtoH", "HtoH"}:
        inward = directions == {"HtoD"}
        read, written = (0.0, moved) if inward else (moved, 0.0)
        return Work(
            count="exact", vector_flop=0.0, bytes_read=read, bytes_written=written, link="host", family="movement"
        )
    if directions == {"PtoP"}:
        return Work(count="exact", bytes_read=0.0, bytes_written=moved, link="network", family="movement")
    if directions == {"DtoD"}:
        return Work(count="exact", vector_flop=0.0, bytes_read=moved, bytes_written=moved, family="movement")
    return None


@rule("Memcpy*", "Memset*", "CopyHost*", "CopyDevice*", "memcpy*", "memset*", family="movement")
def _event(call: OpCall) -> Work:
    work = by_events(call)
    if work is None:
        raise Uncounted("how many bytes were copied is not recorded")
    return work


@rule("aten::copy_", "aten::_foreach_copy", "aten::_copy_from", family="movement")
def _copy(call: OpCall) -> Work:
    over_the_host_link = by_events(call)
    if over_the_host_link is not None and over_the_host_link.link != "memory":
        return over_the_host_link
    target, source = tensor(call, 0), tensor(call, 1)
    return copy(read=read_bytes(source), written=write_bytes(target.shape, target.dtype))


@rule("aten::clone", "aten::contiguous", "aten::pin_memory", "aten::_reshape_copy", family="movement")
@rule("aten::permute_copy", "aten::view_copy", "aten::expand_copy", "aten::slice_copy", family="movement")
@rule("aten::flip", "aten::roll", "aten::rot90", "aten::fliplr", "aten::flipud", family="movement")
@rule("aten::tril", "aten::triu", "aten::tril_", "aten::triu_", family="movement")
@rule("aten::pixel_shuffle", "aten::pixel_unshuffle", "aten::channel_shuffle", family="movement")
def _same_size(call: OpCall) -> Work:
    given = tensor(call, 0)
    return copy(read=read_bytes(given), written=write_bytes(given.shape, given.dtype))


@rule("aten::cat", "aten::_cat", "aten::concat", "aten::concatenate", "aten::stack", family="movement")
@rule("aten::hstack", "aten::vstack", "aten::dstack", "aten::_pack_padded_sequence", family="movement")
def _cat(call: OpCall) -> Work:
    parts = tensor_list(call, 0)
    written = sum(write_bytes(one.shape, one.dtype) for one in parts)
    return copy(read=read_bytes(*parts), written=written)


@rule("aten::fill_", "aten::zero_", "aten::fill", family="movement")
@rule("aten::zeros_like", "aten::ones_like", "aten::full_like", family="movement")
@rule("aten::rand_like", "aten::randn_like", "aten::eye", "aten::randperm", family="movement")
def _fill(call: OpCall) -> Work:
    target = tensor(call, 0)
    return copy(read=0.0, written=write_bytes(target.shape, target.dtype))


@rule("aten::zeros", "aten::ones", "aten::full", family="movement")
@rule("aten::new_zeros", "aten::new_ones", "aten::new_full", family="movement")
def _filled(call: OpCall) -> Work:
    place = 1 if "::new_" in call.name else 0
    kind = {"aten::full": 2, "aten::new_zeros": 2, "aten::new_ones": 2, "aten::new_full": 3}.get(call.name, 1)
    shape = integers(call, place)
    if shape is None:
        raise Uncounted("the size to fill is not recorded")
    return copy(read=0.0, written=write_bytes(shape, dtype(call, kind) or "float32"))


@rule("aten::arange", "aten::linspace", "aten::range", family="movement")
def _arange(call: OpCall) -> Work:
    out = list(tensors(call))
    if out and out[-1].shape and out[-1].shape != (0,):
        return copy(read=0.0, written=write_bytes(out[-1].shape, out[-1].dtype))
    values = [value for value in (number(call, place) for place in range(3)) if value is not None]
    if not values:
        raise Uncounted("the range is not recorded")
    start, end = (0.0, values[0]) if len(values) == 1 else (values[0], values[1])
    step = values[2] if len(values) > 2 else 1.0
    if step == 0 or abs(end) == float("inf"):
        raise Uncounted("the range is not finite")
    count = max(0, ceil_divide(int(end - start), int(step)) if step == int(step) else int((end - start) / step) + 1)
    return copy(read=0.0, written=write_bytes((count,), out[-1].dtype if out else "int64"))


@rule("aten::repeat", "aten::tile", family="movement")
def _repeat(call: OpCall) -> Work:
    given, times = tensor(call, 0), integers(call, 1)
    if times is None:
        raise Uncounted("the repeats are not recorded")
    return copy(read=read_bytes(given), written=write_bytes((*given.shape, *times), given.dtype))


@rule("aten::repeat_interleave", family="movement")
def _repeat_interleave(call: OpCall) -> Work:
    given, times = tensor(call, 0), integer(call, 1)
    if times is None:
        raise Uncounted("the repeats are not recorded")
    return copy(read=read_bytes(given), written=write_bytes((*given.shape, times), given.dtype))


@rule("aten::constant_pad_nd", "aten::pad", "aten::reflection_pad1d", "aten::reflection_pad2d", family="movement")
@rule("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d", family="movement")
@rule("aten::_pad_circular", family="movement")
def _pad(call: OpCall) -> Work:
    given, pads = tensor(call, 0), integers(call, 1)
    if pads is None or len(pads) > 2 * len(given.shape):
        raise Uncounted("the padding is not recorded")
    shape = list(given.shape)
    for index in range(len(pads) // 2):  # pairs from the last dimension backwards
        shape[-1 - index] = max(0, shape[-1 - index] + pads[2 * index] + pads[2 * index + 1])
    return copy(read=read_bytes(given), written=write_bytes(shape, given.dtype))


_VIEWS = (
    "view reshape _reshape_alias _unsafe_view view_as reshape_as flatten unflatten t transpose transpose_ t_ mT "
    "permute movedim moveaxis swapaxes swapdims expand expand_as broadcast_to slice select narrow chunk split "
    "split_with_sizes tensor_split unbind unfold as_strided as_strided_ squeeze squeeze_ unsqueeze unsqueeze_ detach "
    "detach_ alias lift_fresh diagonal real imag view_as_real view_as_complex conj empty empty_like empty_strided "
    "new_empty new_empty_strided empty_quantized resize_ resize_as_ set_ result_type size stride is_nonzero "
    "requires_grad_ _has_compatible_shallow_copy_type is_pinned record_stream _resize_output_"
)


@rule(*(f"aten::{name}" for name in _VIEWS.split()), "detach", family="view")
def _view(call: OpCall) -> Work:
    """Free. Copies that the trace puts under it are its own; any other kernel is somebody else's."""
    work = by_events(call) if call.kernels else None
    if work is not None:
        return work
    if call.kernels and not call.name.startswith(("aten::reshape", "aten::flatten", "aten::conj")):
        raise Uncounted("a view makes no kernel: this one was launched outside of any op")
    if call.kernels:
        return _same_size(call)
    return VIEW
