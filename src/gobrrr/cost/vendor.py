"""Kernels of serving stacks (vLLM, SGLang, AITER) that are handed their outputs."""

from __future__ import annotations

from gobrrr.cost.arguments import maybe_tensor, tensor
from gobrrr.cost.build import copy, vector
from gobrrr.cost.normalization import RMS_FLOP
from gobrrr.cost.pointwise import fused
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Work


@rule("_C::rms_norm", "aiter::rmsnorm", "sgl_kernel::rmsnorm", "aiter::rms_norm", family="normalization")
def _rms_norm(call: OpCall) -> Work:
    out, given, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return fused([given, weight], [out], RMS_FLOP * numel(given.shape))


@rule("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", family="normalization")
def _add_rms_norm(call: OpCall) -> Work:
    """(input, residual, weight), the first two in place."""
    given, residual, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return fused([given, residual, weight], [given, residual], (RMS_FLOP + 1) * numel(given.shape))


@rule("aiter::add_rmsnorm", family="normalization")
def _aiter_add_rms_norm(call: OpCall) -> Work:
    """(output, input, residual in, residual out, weight)."""
    out, given, before, after, weight = (tensor(call, place) for place in range(5))
    return fused([given, before, weight], [out, after], (RMS_FLOP + 1) * numel(given.shape))


@rule("aiter::_groupnorm_run", family="normalization")
def _group_norm(call: OpCall) -> Work:
    given = tensor(call, 0)
    return vector(
        flop=8 * numel(given.shape),
        dtype=given.dtype,
        read=2 * read_bytes(given) + read_bytes(maybe_tensor(call, 2), maybe_tensor(call, 3)),
        written=write_bytes(given.shape, given.dtype),
        count="bounded",
        note="taken as two passes over the input",
    )


@rule("_C::silu_and_mul", "sgl_kernel::silu_and_mul", "_C::gelu_and_mul", "_C::gelu_tanh_and_mul", family="pointwise")
@rule("sgl_kernel::gelu_and_mul", "sgl_kernel::gelu_tanh_and_mul", "aiter::silu_and_mul", family="pointwise")
def _gated(call: OpCall) -> Work:
    out, given = tensor(call, 0), tensor(call, 1)
    return fused([given], [out], 3 * numel(out.shape))


@rule(
    "_C::rotary_embedding",
    "sgl_kernel::rotary_embedding",
    "aiter::rope_cached_positions_2c_fwd_impl",
    family="pointwise",
)
def _rotary(call: OpCall) -> Work:
    """(positions, query, key, ...) in place; of the cosine table no more rows are read than there are positions."""
    positions, rotated = tensor(call, 0), [tensor(call, 1)]
    key, table = maybe_tensor(call, 2), maybe_tensor(call, 4)
    if key is not None:
        rotated.append(key)
    rows = min(numel(positions.shape), table.shape[0]) if table is not None and table.shape else 0
    angles = write_bytes((rows, *table.shape[1:]), table.dtype) if table is not None else 0.0
    count = sum(numel(part.shape) for part in rotated)
    return vector(
        flop=3 * count,
        dtype=rotated[0].dtype,
        read=read_bytes(positions, *rotated) + angles,
        written=sum(write_bytes(part.shape, part.dtype) for part in rotated),
        count="bounded",
        note="each position's angles are taken as read once",
    )


@rule("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", family="movement")
@rule("sglang::store_cache", "sgl_kernel::store_kv_cache", family="movement")
def _store_cache(call: OpCall) -> Work:
    """(key, value, key cache, value cache, slots): the new rows only."""
    key, value, cache, slots = tensor(call, 0), tensor(call, 1), tensor(call, 2), maybe_tensor(call, 4)
    written = write_bytes(key.shape, cache.dtype) + write_bytes(value.shape, cache.dtype)
    return copy(read=read_bytes(key, value, slots), written=written)


@rule("vllm::unified_attention*", "vllm::unified_mla_attention*", family="attention")
def _served_attention(call: OpCall) -> Work:
    raise Uncounted("how many keys each query attends to is in the serving engine's metadata, not in the trace")


@rule("vllm::moe_forward*", "vllm::fused_moe*", "vllm::outplace_fused_experts*", family="matmul")
def _experts(call: OpCall) -> Work:
    raise Uncounted("the experts' weights are not among the recorded arguments")
