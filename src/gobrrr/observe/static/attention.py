"""Which kernel `scaled_dot_product_attention` would take on the target GPU, called by its own name.

On fake tensors the dispatcher would fall back to plain matrix products. The choice here is that of
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: flash, then memory-efficient, then the maths.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
import torch.nn.functional as F

aten = torch.ops.aten
Needing = Callable[[float], AbstractContextManager[None]]
Kernel = Literal["flash", "cudnn", "efficient", "math"]
LARGEST_HEAD = 256
LARGEST_CUDNN_HEAD = 128
HALVES = (torch.float16, torch.bfloat16)


def attend(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    needing: Needing,
) -> Any:
    """The attention of query [B, H, S, D] on key and value [B, H or fewer, T, D], by the kernel that a GPU takes.

    `needing(share)` is a region in which that share of each product is what the maths needs.
    """
    kernel = choose(query, key, value, attn_mask, is_causal=is_causal, enable_gqa=enable_gqa)
    if kernel == "flash":
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if kernel == "cudnn":
        return _cudnn(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if kernel == "efficient":
        return _efficient(query, key, value, attn_mask, dropout_p, is_causal, scale)
    rows, columns = query.shape[-2], key.shape[-2]
    with needing(_left_by_mask(rows, columns) if is_causal else 1.0):
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]


def _left_by_mask(rows: int, columns: int) -> float:
    """Share of the (query, key) pairs that a causal mask leaves: row i sees the first i + 1 keys."""
    seen = min(rows, columns)
    pairs = seen * (seen + 1) / 2 + (rows - seen) * columns
    return pairs / max(rows * columns, 1)


def choose(query: Any, key: Any, value: Any, mask: Any, *, is_causal: bool, enable_gqa: bool) -> Kernel:
    """The kernel for these arguments, as the user's `torch.backends.cuda` switches allow."""
    given = (query, key, value)
    if any(one.layout is not torch.strided or one.dim() != 4 for one in given):
        return "math"
    heads = {one.shape[-1] for one in given}
    if _flash_allowed(query, mask, heads) and torch.backends.cuda.flash_sdp_enabled():
        return "flash"
    grouped = enable_gqa and query.shape[1] != key.shape[1]
    if _cudnn_allowed(query, mask, heads) and not is_causal and not grouped:
        return "cudnn"
    typed = query.dtype in (*HALVES, torch.float32)
    allowed = torch.backends.cuda.mem_efficient_sdp_enabled() and not (is_causal and mask is not None)
    return "efficient" if typed and not grouped and allowed else "math"


def _cudnn_allowed(query: Any, mask: Any, heads: set[int]) -> bool:
    """cuDNN's kernel takes a mask where flash does not; on Hopper and newer it comes first (torch 2.9 and newer)."""
    fits = len(heads) == 1 and max(heads) <= LARGEST_CUDNN_HEAD and max(heads) % 8 == 0
    learned = mask is not None and mask.requires_grad  # cuDNN's has no gradient for the mask
    allowed = fits and not learned and torch.backends.cuda.cudnn_sdp_enabled()
    return query.dtype in HALVES and mask is not None and allowed


def _flash_allowed(query: Any, mask: Any, heads: set[int]) -> bool:
    return query.dtype in HALVES and mask is None and len(heads) == 1 and max(heads) <= LARGEST_HEAD


def _flash(query: Any, key: Any, value: Any, dropout: float, causal: bool, scale: float | None) -> Any:
    """Heads whose size is no multiple of 8 are padded first, as the composite operation does."""
    head = query.shape[-1]
    scale = scale if scale is not None else head**-0.5
    if head % 8:
        query, key, value = (F.pad(one, (0, 8 - head % 8)) for one in (query, key, value))
    result = aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)[0]
    return result[..., :head] if head % 8 else result


def _additive(query: Any, key: Any, mask: Any) -> Any:
    """A mask as what is added to the scores, one for each head and query."""
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _training(*given: Any) -> bool:
    return torch.is_grad_enabled() and any(one.requires_grad for one in given)


def _cudnn(query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: float | None) -> Any:
    mask = _additive(query, key, mask)
    keeps = _training(query, key, value)
    return aten._scaled_dot_product_cudnn_attention(
        query, key, value, mask, keeps, dropout, causal, False, scale=scale
    )[0]


def _efficient(query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: float | None) -> Any:
    mask = _additive(query, key, mask) if mask is not None else None
    training = _training(query, key, value)
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, training, dropout, causal, scale=scale
    )[0]
