"""CUDA's autocast policy where there is no CUDA: what it runs in float32, in the lower precision, or in the widest.

CPU's autocast, which stands in for it, lowers the same matrix products and convolutions but neither products with a
vector nor recurrent cells, and leaves more operations in the lower precision. The lists are those of
aten/src/ATen/autocast_mode.h (AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_LOWER_PRECISION_FP and
AT_FORALL_PROMOTE), torch 2.13; `cross_entropy` stands for the log_softmax within it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

_LOWER = (torch.float16, torch.bfloat16)

_FLOAT32 = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm group_norm",
    "native_layer_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss",
    "hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss",
    "multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits",
    "cross_entropy dist pdist cdist renorm logsumexp upsample_nearest1d upsample_nearest2d upsample_bilinear2d",
    "upsample_bicubic2d pairwise_distance __pow__ __rpow__ __rdiv__ __rtruediv__ norm",
)
_OPTIONAL_DTYPE = ["prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum", "softmin"]
_LOWERED = ["addmv", "addr", "mv", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"]
_WIDEST = ["dot", "bilinear", "scatter_add", "cross", "atan2", "index_put"]
_PLAIN = ["avg_pool3d", "max_pool3d", "adaptive_avg_pool3d", "trace", "pad"]  # in float32 on the CPU alone


def _functions(names: list[str]) -> dict[Any, str]:
    """Python's spellings of the operations: torch.*, torch.Tensor.* and torch.nn.functional.*."""
    found: dict[Any, str] = {}
    for name in names:
        for home in (torch, torch.Tensor, F, torch.special, torch._C._nn, torch._VF):
            function = getattr(home, name, None)
            if function is not None:
                found[function] = name
    return found


FLOAT32 = _functions(" ".join(_FLOAT32).split())
OPTIONAL_DTYPE = _functions(_OPTIONAL_DTYPE)
LOWERED = _functions(_LOWERED)
WIDEST = _functions(_WIDEST)
PLAIN = _functions(_PLAIN)


def widened(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as CUDA's autocast would pass them on."""
    if function in FLOAT32:
        return tuple(map(_wide, args)), {key: _wide(one) for key, one in kwargs.items()}
    if function in OPTIONAL_DTYPE and kwargs.get("dtype") is None and args and _low(args[0]):
        return args, {**kwargs, "dtype": torch.float32}
    if function in LOWERED:
        return _cast(args, kwargs, torch.get_autocast_dtype("cpu"))
    if function in WIDEST:
        given = [
            argument
            for argument in (*args, *kwargs.values())
            if isinstance(argument, torch.Tensor) and argument.is_floating_point()
        ]
        if any(one.dtype == torch.float32 for one in given):
            return _cast(args, kwargs, torch.float32)
    return args, kwargs


def _cast(args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Floating-point tensors in `dtype`, but those of float64."""

    def cast(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(cast, value))
        single = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64
        return value.to(dtype) if single else value

    return tuple(map(cast, args)), {key: cast(one) for key, one in kwargs.items()}


def _low(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _LOWER


def _wide(value: Any) -> Any:
    if _low(value):
        return value.to(torch.float32)
    if isinstance(value, list | tuple) and any(map(_low, value)):
        return type(value)(_wide(one) for one in value)
    return value
