"""Settings of the interpreter and of torch as they were: random states, defaults, switches, what is imported."""

from __future__ import annotations

import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses import fake_tensor

from gobrrr.observe.installed import is_users

_FLAGS = (
    ("torch.backends.cudnn", "enabled benchmark deterministic allow_tf32"),
    (
        "torch.backends.cuda.matmul",
        "allow_tf32 allow_fp16_reduced_precision_reduction allow_bf16_reduced_precision_reduction",
    ),
    ("torch.backends.mkldnn", "enabled"),
)
_SWITCHES = (
    ("get_float32_matmul_precision", "set_float32_matmul_precision"),
    ("get_default_dtype", "set_default_dtype"),
    ("is_grad_enabled", "set_grad_enabled"),
    ("get_deterministic_debug_mode", "set_deterministic_debug_mode"),
    ("get_num_threads", "set_num_threads"),
    ("is_autocast_cache_enabled", "set_autocast_cache_enabled"),
    ("get_rng_state", "set_rng_state"),
)
_HARMLESS = (
    "Accessing the data pointer of FakeTensor",  # torch's own copies ask for an address, which fake tensors lack
    r"Using `torch\.compile\(module\)` when there are global hooks",  # those that follow the modules
)
_ATTENTION = ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")


@contextmanager
def kept() -> Iterator[None]:
    """Everything set back at the end of the block."""
    with ExitStack() as stack:
        for undo in (*_switches(), *_flags(), *_numbers(), _autocast(), _imports(), _default_device(), _checkpoints()):
            stack.callback(undo)
        stack.callback(_attribute(logging.getLogger(fake_tensor.__name__), "disabled"))
        logging.getLogger(fake_tensor.__name__).disabled = True  # it prints the traceback of what is raised anyway
        stack.enter_context(warnings.catch_warnings())
        for message in _HARMLESS:
            warnings.filterwarnings("ignore", message=message)
        yield


def _switches() -> list[Callable[[], None]]:
    """torch.set_this to what torch.get_this says now."""
    undo = [_again(getattr(torch, write), getattr(torch, read)()) for read, write in _SWITCHES if hasattr(torch, read)]
    anomaly, checked = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    undo.append(lambda: torch.set_anomaly_enabled(anomaly, checked))
    for word in _ATTENTION:
        read, write = (getattr(torch.backends.cuda, name, None) for name in (f"{word}_enabled", f"enable_{word}"))
        if read is not None and write is not None:
            undo.append(_again(write, read()))
    return undo


def _again(write: Callable[[Any], Any], value: Any) -> Callable[[], None]:
    return lambda: _ignored(write(value))


def _ignored(_: object) -> None: ...


def _flags() -> list[Callable[[], None]]:
    """The switches of torch.backends."""
    undo = []
    for home, names in _FLAGS:
        module: Any = torch
        for part in home.split(".")[1:]:
            module = getattr(module, part)
        undo += [_attribute(module, name) for name in names.split() if hasattr(module, name)]
    return undo


def _attribute(module: Any, name: str) -> Callable[[], None]:
    value = getattr(module, name)

    def undo() -> None:
        if getattr(module, name) != value:
            setattr(module, name, value)

    return undo


def _numbers() -> list[Callable[[], None]]:
    """The random states of Python and, if it is there, of NumPy."""
    undo: list[Callable[[], None]] = [_again(random.setstate, random.getstate())]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        undo.append(_again(numpy.random.set_state, numpy.random.get_state()))
    return undo


def _autocast() -> Callable[[], None]:
    enabled, kind = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def undo() -> None:
        torch.set_autocast_enabled("cpu", enabled)
        torch.set_autocast_dtype("cpu", kind)

    return undo


def _imports() -> Callable[[], None]:
    """The search path and the arguments; and modules of the user's own that were imported with the modes on, which
    hold fake tensors."""
    path, known, arguments = list(sys.path), set(sys.modules), list(sys.argv)

    def undo() -> None:
        sys.path[:] = path
        sys.argv[:] = arguments
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file and is_users(file):
                del sys.modules[name]

    return undo


def _checkpoints() -> Callable[[], None]:
    """The kind of device that torch.utils.checkpoint takes for the default, once it has looked."""
    from torch.utils.checkpoint import DefaultDeviceType

    return _attribute(DefaultDeviceType, "_default_device_type")


def _default_device() -> Callable[[], None]:
    held = torch._GLOBAL_DEVICE_CONTEXT
    before = getattr(held, "device_context", None)

    def undo() -> None:
        if getattr(held, "device_context", None) is not before:
            torch.set_default_device(before.device if before is not None else None)

    return undo
