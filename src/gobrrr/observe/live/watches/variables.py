"""Environment variables that slow a program down, and the values at which they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def _on(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "off", "no", "n")


def _set(_: str) -> bool:
    return True


def _any_text(value: str) -> bool:
    return value != ""


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value.strip().lower() in values


SLOWING_VALUES: Mapping[str, Callable[[str], bool]] = {
    # the host waits for each kernel
    "CUDA_LAUNCH_BLOCKING": _on,
    "HIP_LAUNCH_BLOCKING": _on,
    "AMD_SERIALIZE_KERNEL": _on,
    "AMD_SERIALIZE_COPY": _on,
    # each allocation asks the driver; torch asks whether the variable is there, not for its value
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _set,
    "PYTORCH_NO_HIP_MEMORY_CACHING": _set,
    # slower matrix products
    "NVIDIA_TF32_OVERRIDE": _one_of("0"),
    "CUBLAS_WORKSPACE_CONFIG": _one_of(":16:8"),
    # collectives that are checked, blocking or logged
    "NCCL_DEBUG": _one_of("info", "trace"),
    "NCCL_BLOCKING_WAIT": _on,
    "TORCH_NCCL_BLOCKING_WAIT": _on,
    "TORCH_DISTRIBUTED_DEBUG": _one_of("info", "detail"),
    # a compiler that is off, or logs what it does
    "TORCH_COMPILE_DISABLE": _on,
    "TORCHDYNAMO_DISABLE": _on,
    "PYTORCH_JIT": _one_of("0"),
    "TORCH_COMPILE_DEBUG": _on,
    "TORCH_LOGS": _any_text,
    "TORCH_TRACE": _any_text,
    # libraries that log each call
    "TORCH_SHOW_CPP_STACKTRACES": _on,
    "TORCH_CPP_LOG_LEVEL": _one_of("info", "0"),
    "TORCH_SHOW_DISPATCH_TRACE": _on,
    "MKL_VERBOSE": _on,
    "DNNL_VERBOSE": _on,
    "ONEDNN_VERBOSE": _on,
    "CUBLAS_LOGINFO_DBG": _on,
    "CUBLASLT_LOG_LEVEL": _on,
    "CUDNN_LOGINFO_DBG": _on,
    "CUDNN_LOGLEVEL_DBG": _on,
    # Python's and the C library's own checks
    "PYTHONDEVMODE": _any_text,
    "PYTHONTRACEMALLOC": _on,
    "PYTHONMALLOC": _one_of("debug", "malloc_debug", "pymalloc_debug", "mimalloc_debug"),
    "MALLOC_CHECK_": _on,
    "MALLOC_PERTURB_": _on,
    # a tool loaded into every CUDA program
    "CUDA_INJECTION64_PATH": _any_text,
}
"""For each variable, whether a value of it slows the program down."""


def slowing(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables of `environment` that slow the program down, with their values."""
    return tuple(
        (name, environment[name])
        for name, slow in SLOWING_VALUES.items()
        if name in environment and slow(environment[name])
    )
