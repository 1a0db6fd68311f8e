"""Data movement: copies and joins, and the views that move nothing. No FLOP."""

from __future__ import annotations

from gobrrr.cost.arguments import integer, integers, maybe_tensor, tensor, tensor_list, tensors
from gobrrr.cost.build import VIEW, copy, made_bytes, vector
from gobrrr.cost.dtypes import promote
from gobrrr.cost.kernels import copy_direction
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.model.work import DTYPE_BYTES, OpCall, Work


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


@rule("aten::clone", "aten::contiguous", "aten::pin_memory", "aten::_pin_memory", family="movement")
@rule("aten::_reshape_copy", "aten::_reshape_alias_copy", "aten::permute_copy", "aten::view_copy", family="movement")
@rule("aten::alias_copy", "aten::detach_copy", "aten::t_copy", "aten::transpose_copy", family="movement")
@rule("aten::squeeze_copy", "aten::unsqueeze_copy", "aten::lift_fresh_copy", "aten::unbind_copy", family="movement")
@rule("aten::split_copy", "aten::split_with_sizes_copy", "aten::_conj_copy", "aten::_neg_view_copy", family="movement")
@rule("aten::view_as_real_copy", "aten::view_as_complex_copy", "aten::_lazy_clone", family="movement")
@rule("aten::_fw_primal_copy", "aten::_make_dual_copy", "aten::_copy_from_and_resize", family="movement")
@rule("aten::flip", "aten::roll", "aten::rot90", "aten::fliplr", "aten::flipud", family="movement")
@rule("aten::tril", "aten::triu", "aten::tril_", "aten::triu_", family="movement")
@rule("aten::pixel_shuffle", "aten::pixel_unshuffle", "aten::channel_shuffle", family="movement")
@rule("aten::native_channel_shuffle", "aten::to_mkldnn", "aten::_mkldnn_reshape", family="movement")
@rule("aten::_mkldnn_transpose", "aten::_mkldnn_transpose_", "aten::int_repr", family="movement")
@rule("aten::mkldnn_reorder_conv2d_weight", "aten::mkldnn_reorder_conv3d_weight", family="movement")
def _same_size(call: OpCall) -> Work:
    given = tensor(call, 0)
    return copy(read=read_bytes(given), written=write_bytes(given.shape, given.dtype))


@rule("aten::copy", family="movement")
def _functional_copy(call: OpCall) -> Work:
    target, source = tensor(call, 0), tensor(call, 1)
    return copy(read=read_bytes(source), written=write_bytes(target.shape, target.dtype))


@rule("aten::_local_scalar_dense", family="movement")
def _item(call: OpCall) -> Work:
    """`.item()`: one element from the device to the host, which waits for it. Nothing on the device's memory counts."""
    moved = by_events(call)
    if moved is not None:
        return moved
    given = maybe_tensor(call, 0)
    if given is None or not given.dtype:
        note = "the element's type is not recorded: at most the widest one's bytes"
        size = max(DTYPE_BYTES.values())
        return Work(count="bounded", vector_flop=0.0, bytes_read=size, bytes_written=0.0, link="host", note=note)
    size = write_bytes((), given.dtype)
    return Work(count="exact", vector_flop=0.0, bytes_read=size, bytes_written=0.0, link="host")


@rule("synchronize", family="view")
def _wait(call: OpCall) -> Work:
    """The host waits for the device: no work of either (the static door's name for a call that only waits)."""
    return VIEW


@rule("aten::cat", "aten::_cat", "aten::concat", "aten::concatenate", "aten::stack", family="movement")
@rule("aten::hstack", "aten::vstack", "aten::dstack", "aten::_pack_padded_sequence", family="movement")
@rule("aten::_stack", "aten::_chunk_cat", "aten::block_diag", "aten::column_stack", family="movement")
def _cat(call: OpCall) -> Work:
    parts = tensor_list(call, 0)
    kind = promote(parts)
    padded = call.name in ("aten::_chunk_cat", "aten::block_diag")
    made = made_bytes(call)  # with the padding of _chunk_cat, the zeros of block_diag
    written = sum(write_bytes(part.shape, kind) for part in parts) if made is None else made
    if padded and made is None:
        return copy(read=read_bytes(*parts), written=written, count="bounded", note="without what fills it up")
    return copy(read=read_bytes(*parts), written=written)


@rule("aten::repeat", "aten::tile", family="movement")
def _repeat(call: OpCall) -> Work:
    given, times = tensor(call, 0), integers(call, 1)
    if times is None:
        raise Uncounted("the repeats are not recorded")
    return copy(read=read_bytes(given), written=write_bytes((*given.shape, *times), given.dtype))


@rule("aten::repeat_interleave", family="movement")
def _repeat_interleave(call: OpCall) -> Work:
    """(self, repeats): the elements; (repeats, output size): the positions that they come from."""
    given, made = tensor(call, 0), made_bytes(call)
    if made is not None:
        return copy(read=read_bytes(*tensors(call)), written=made)
    times = integer(call, 1)
    if times is None:
        raise Uncounted("the repeats are not recorded")
    positions = len(call.inputs) == 2 and given.dtype in ("int32", "int64")
    shape = (times,) if positions else (*given.shape, times)
    return copy(read=read_bytes(given), written=write_bytes(shape, given.dtype))


@rule("aten::constant_pad_nd", "aten::pad", "aten::reflection_pad1d", "aten::reflection_pad2d", family="movement")
@rule("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d", family="movement")
@rule("aten::reflection_pad3d", family="movement")
@rule("aten::_pad_circular", family="movement")
def _pad(call: OpCall) -> Work:
    given, pads = tensor(call, 0), integers(call, 1)
    if pads is None or len(pads) > 2 * len(given.shape):
        raise Uncounted("the padding is not recorded")
    shape = list(given.shape)
    for index in range(len(pads) // 2):  # pairs from the last dimension backwards
        shape[-1 - index] = max(0, shape[-1 - index] + pads[2 * index] + pads[2 * index + 1])
    return copy(read=read_bytes(given), written=write_bytes(shape, given.dtype))


@rule(
    *(f"aten::{kind}_pad{rank}d_backward" for kind in ("reflection", "replication") for rank in (1, 2, 3)),
    family="movement",
)
def _pad_backward(call: OpCall) -> Work:
    """Adds each border's gradient to the element that it was copied from."""
    grad, given = tensor(call, 0), tensor(call, 1)
    added = float(max(0, numel(grad.shape) - numel(given.shape)))
    return vector(
        flop=added, dtype=grad.dtype, read=read_bytes(grad), written=write_bytes(given.shape, grad.dtype),
        fusible=False,
    )  # fmt: skip


# Operations that make a view, or allocate.
_VIEWS = (
    "view reshape _reshape_alias _unsafe_view view_as reshape_as flatten unflatten t transpose transpose_ t_ mT "
    "permute movedim moveaxis swapaxes swapdims expand expand_as broadcast_to slice select narrow chunk split "
    "split_with_sizes tensor_split unbind unfold as_strided as_strided_ squeeze squeeze_ unsqueeze unsqueeze_ detach "
    "detach_ alias lift_fresh diagonal real imag view_as_real view_as_complex conj empty empty_like empty_strided "
    "new_empty new_empty_strided empty_quantized resize_ resize_as_ set_ result_type size stride is_nonzero "
    "requires_grad_ _has_compatible_shallow_copy_type is_pinned record_stream _resize_output_ unsafe_split "
    "unsafe_split_with_sizes unsafe_chunk lift adjoint"
)
# Bookkeeping that asks or sets what a tensor is, not what is in it.
_FREE = (
    "is_same_size is_set_to _has_same_storage_numel _fused_sdp_choice _assert_async _assert_scalar "
    "_assert_tensor_metadata _functional_assert_async _functional_assert_scalar _functional_sym_constrain_range "
    "_functional_sym_constrain_range_for_size sym_constrain_range sym_constrain_range_for_size _linalg_check_errors "
    "dense_dim sparse_dim _dimI _dimV _nnz is_coalesced _coalesced _coalesced_ q_scale q_zero_point q_per_channel_axis "
    "q_per_channel_scales q_per_channel_zero_points qscheme _empty_affine_quantized "
    "_empty_per_channel_affine_quantized "
    "_efficientzerotensor empty_permuted resize resize_as set _resize_output _print _make_dep_token "
    "_use_cudnn_ctc_loss _use_miopen_ctc_loss _nested_compute_contiguous_strides_offsets _nested_get_lengths "
    "_nested_get_max_seqlen _nested_get_min_seqlen _nested_get_offsets _nested_get_ragged_idx "
    "_nested_get_jagged_dummy _nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets "
    "_validate_compressed_sparse_indices _cudnn_init_dropout_state _test_parallel_materialize sparse_resize_ "
    "sparse_resize_and_clear_ resize_as_sparse_ _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors "
    "sparse_coo_tensor sparse_compressed_tensor _sparse_compressed_tensor_with_dims _make_per_tensor_quantized_tensor "
    "_make_per_channel_quantized_tensor"
)


@rule(*(f"aten::{name}" for name in f"{_VIEWS} {_FREE}".split()), "detach", "profiler::*", family="view")
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
