"""The fusing compiler: torch.compile, whose compiled code is dropped with the function that it was made for."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.hardware.measure.device import Device, code_generator


class NoCompilerError(GobrrrError):
    """No fusing compiler works here; the text says why."""


def fresh(function: Any) -> Any:
    """A copy of a function with a code object of its own: the compiler keys its cache and its limits by code object."""
    code = function.__code__.replace()
    copy = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def fused(device: Device, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """`function` compiled into fused kernels for arguments like `examples`, and run once on them.

    Raises NoCompilerError where there is no compiler, or where it fails.
    """
    if code_generator(device) is None:
        need = "a C++ compiler (g++ or clang++)" if device.is_cpu else "Triton"
        raise NoCompilerError(f"torch.compile needs {need}, which is not here")
    try:
        with compiling(device.torch):
            compiled: Callable[..., Any] = device.torch.compile(fresh(function), dynamic=False, fullgraph=True)
            compiled(*examples)
    except NoCompilerError:
        raise
    except Exception as error:  # whatever the compiler stack raises: its failures are of many kinds
        raise NoCompilerError(f"torch.compile fails here: {first_line(error)}") from None
    device.wait()
    return compiled


@contextmanager
def compiling(torch: Any, **inductor: Any) -> Iterator[None]:
    """Compile in this process without leaving worker processes or settings behind, and without its warnings."""
    import torch._inductor.config as config

    with warnings.catch_warnings(), config.patch(compile_threads=1, **inductor):
        warnings.simplefilter("ignore")
        yield


def first_line(error: BaseException) -> str:
    """The first line of an exception that says something, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
