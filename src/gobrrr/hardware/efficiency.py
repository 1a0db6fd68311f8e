"""What share of its ceilings a kernel reaches, by operation, element type and size: measured once, stored.

The shares are those of an H100 (bench/gpu/op_sweep.py measures single operations over sizes, bench/gpu/labels.py whole
models; bench/fit_efficiency.py fits them); on another machine the same shares of its own ceilings are assumed.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

EFFICIENCY_FILE = "data/efficiency.json"
"""The stored table: bench/fit_efficiency.py makes it."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Time of a call: `fixed_ns` + max(compute floor / `compute`, memory floor / `memory`).

    `cached`: the share of the DRAM bandwidth (it may be above 1) where the call's bytes fit the last-level cache.
    `kernels`: pieces of device work a call (and step of a recurrence). `spread`: the standard deviation of
    ln(measured / predicted) over `points` cases.
    """

    fixed_ns: float
    compute: float
    memory: float
    cached: float
    kernels: float = 1.0
    spread: float = 0.3
    points: int = 0


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """The stored table. `shares` by key ("mm.odd|bfloat16", "mm|bfloat16", "matmul", ""): see `keys`.

    `measured_over_datasheet` by ceiling ("bfloat16", "memory"): what the card's own benchmark reaches of its datasheet.
    The shares are of the datasheet's ceilings; of a measured ceiling they are that much more. `step_spread`: the
    standard deviation of ln(measured / predicted) of whole steps of models that the shares were not fitted to.
    """

    device: str
    datasheet: str
    date: str
    torch: str
    command: str
    least_ns: float
    measured_over_datasheet: dict[str, float]
    shares: dict[str, Share]
    step_spread: float

    def share(self, kind: ShareKey) -> tuple[str, Share]:
        """(key, entry): the most specific entry that there is."""
        for key in keys(kind):
            found = self.shares.get(key)
            if found is not None:
                return key, found
        return "", self.shares[""]


class ShareKey(NamedTuple):
    """What decides a call's share: canonical name, variant (gobrrr.hardware.variants), family, element type."""

    op: str
    variant: str
    family: str
    dtype: str


def keys(kind: ShareKey) -> tuple[str, ...]:
    """The keys under which a kind's share may stand, most specific first; "" stands for everything."""
    op = f"{kind.op}.{kind.variant}" if kind.variant else kind.op
    family = f"{kind.family}.{kind.variant}" if kind.variant else kind.family
    found = (f"{op}|{kind.dtype}", op, f"{kind.op}|{kind.dtype}", f"{family}|{kind.dtype}", family, kind.op)
    return tuple(dict.fromkeys((*found, f"{kind.family}|{kind.dtype}", kind.family, "")))


SAME_KERNELS = {
    "_to_copy": "copy", "clone": "copy", "contiguous": "copy", "to": "copy", "_foreach_copy": "copy",
    "zeros": "fill", "zero": "fill", "zeros_like": "fill", "ones": "fill", "ones_like": "fill", "full": "fill",
    "full_like": "fill", "new_zeros": "fill", "new_ones": "fill", "new_full": "fill",
    "cudnn_convolution": "convolution", "_conv_depthwise2d": "convolution", "conv_depthwise3d": "convolution",
    "miopen_convolution": "convolution", "mkldnn_convolution": "convolution", "thnn_conv2d": "convolution",
    "_slow_conv2d_forward": "convolution", "cudnn_convolution_transpose": "convolution",
    "cudnn_batch_norm": "native_batch_norm", "miopen_batch_norm": "native_batch_norm",
    "_native_batch_norm_legit_no_training": "native_batch_norm", "_batch_norm_no_update": "native_batch_norm",
    "_native_batch_norm_legit": "native_batch_norm", "_batch_norm_with_update": "native_batch_norm",
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
    "batch_norm_backward": "native_batch_norm_backward",
    "_flash_attention_forward": "fused_attention", "_cudnn_attention_forward": "fused_attention",
    "_scaled_dot_product_flash_attention": "fused_attention",
    "_scaled_dot_product_cudnn_attention": "fused_attention",
    "_scaled_dot_product_flash_attention_for_cpu": "fused_attention",
    "_flash_attention_backward": "fused_attention_backward",
    "_cudnn_attention_backward": "fused_attention_backward",
    "_scaled_dot_product_flash_attention_backward": "fused_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward": "fused_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "fused_attention_backward",
    "_efficient_attention_forward": "efficient_attention",
    "_scaled_dot_product_efficient_attention": "efficient_attention",
    "_efficient_attention_backward": "efficient_attention_backward",
    "_scaled_dot_product_efficient_attention_backward": "efficient_attention_backward",
    "mkldnn_rnn_layer": "_cudnn_rnn", "lstm": "_cudnn_rnn", "gru": "_cudnn_rnn",
    "mkldnn_rnn_layer_backward": "_cudnn_rnn_backward",
    "relu": "clamp_min", "hardtanh": "clamp", "relu6": "clamp", "native_dropout_forward": "native_dropout",
    "embedding": "index_select", "stack": "cat", "concat": "cat", "linear": "addmm", "matmul": "mm", "baddbmm": "bmm",
    "_fused_adamw": "_fused_adamw", "_fused_adam": "_fused_adamw",
    "upsample_nearest2d": "upsample", "upsample_bilinear2d": "upsample",
    "_embedding_bag_forward_only": "_embedding_bag", "_embedding_bag_backward": "_embedding_bag_dense_backward",
}  # fmt: skip
"""Operations that run the same kernels: what a trace calls them, and what they are called above the backend."""


@cache
def canonical(name: str) -> str:
    """An operation's name without namespace, overload and underscore of its in-place form; same kernels, same name."""
    word = name.partition("::")[2] or name
    word = word.partition(".")[0]
    word = word[:-1] if word.endswith("_") and not word.endswith("__") else word
    return SAME_KERNELS.get(word, word)


@cache
def load() -> Efficiency:
    """The table that is shipped."""
    data = files("gobrrr.hardware").joinpath(EFFICIENCY_FILE).read_bytes()
    return msgspec.json.decode(data, type=Efficiency)
