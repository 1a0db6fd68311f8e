"""torch's settings belong to the caller: `preserved` restores them, also after an exception."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SEED = 20220315
"""The seed of every random number here."""


@contextmanager
def preserved(torch: Any, *, seed: int = SEED) -> Iterator[None]:
    """Run with seeded random numbers and gradients on; then restore threads, precision flags, modes and random state.

    Changes nothing that it does not restore: thread count, TF32 and reduced-precision flags, cuDNN's switches, default
    dtype, gradient mode, warnings about matmul precision, and the random state of the CPU and of every GPU.
    """
    saved = _read(torch)
    with torch.random.fork_rng(devices=range(_gpus(torch))), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            _write(torch, saved)
            gc.collect()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.empty_cache()


def tf32(torch: Any, on: bool) -> None:
    """Let float32 matmuls and convolutions use TF32, or not; only inside `preserved`."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if _has(matmul, "allow_tf32") and _has(cudnn, "allow_tf32"):
        matmul.allow_tf32 = cudnn.allow_tf32 = on
    else:  # the caller used the newer switch, after which torch refuses to read the older one
        matmul.fp32_precision = cudnn.conv.fp32_precision = "tf32" if on else "ieee"


def _gpus(torch: Any) -> int:
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def flags(torch: Any) -> dict[str, tuple[Any, str]]:
    """(object, attribute) of each switch by its name; those that this torch lacks or refuses to read are left out.

    The newer `fp32_precision` stands after `allow_tf32`, which sets it: written back in this order both are as before.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    wanted = {
        "matmul.allow_tf32": (matmul, "allow_tf32"),
        "matmul.bf16_reduction": (matmul, "allow_bf16_reduced_precision_reduction"),
        "matmul.fp16_reduction": (matmul, "allow_fp16_reduced_precision_reduction"),
        "cudnn.allow_tf32": (cudnn, "allow_tf32"),
        "matmul.fp32_precision": (matmul, "fp32_precision"),
        "cudnn.conv.fp32_precision": (getattr(cudnn, "conv", None), "fp32_precision"),
        "cudnn.rnn.fp32_precision": (getattr(cudnn, "rnn", None), "fp32_precision"),
        "cudnn.benchmark": (cudnn, "benchmark"),
        "cudnn.deterministic": (cudnn, "deterministic"),
    }
    return {name: where for name, where in wanted.items() if _has(*where)}


def _has(holder: Any, attribute: str) -> bool:
    try:
        getattr(holder, attribute)
    except (AttributeError, RuntimeError):
        return False
    return True


def _read(torch: Any) -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "flags": {name: getattr(*where) for name, where in flags(torch).items()},
    }


def _write(torch: Any, saved: dict[str, Any]) -> None:
    torch.set_num_threads(saved["threads"])
    torch.set_default_dtype(saved["dtype"])
    for name, (holder, attribute) in flags(torch).items():
        if name in saved["flags"] and getattr(holder, attribute) != saved["flags"][name]:
            setattr(holder, attribute, saved["flags"][name])
