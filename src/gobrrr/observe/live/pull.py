"""A step that is called as often as it takes, by a name or as a callable."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gobrrr.errors import UsageError
from gobrrr.model.workload import Workload
from gobrrr.observe.live.watcher import Watcher, watching
from gobrrr.observe.static.sites import own
from gobrrr.observe.targets import find_callable, step_of

_HERE = str(Path(__file__).resolve().parents[2])
MOST_STEPS = 1_000


@dataclass(frozen=True)
class Pulled:
    """A step that can be called again: what it is made of is known where it came as a Workload or a module."""

    call: Callable[[], Any]
    workload: Workload | None = None


def pull(watcher: Watcher, step: Any, inputs: Sequence[Any], keywords: dict[str, Any]) -> Pulled:
    """Run the step until the watcher has seen enough. What the step raises passes through.

    Where the first call makes a Workload, that one's step is run instead. Raises UsageError where a call returns a
    module, a generator or a function and so ran nothing.
    """
    with watching(watcher):
        pulled = _pulled(step, inputs, keywords)
        watcher.boundary()
        for _ in range(MOST_STEPS):
            if watcher.done:
                break
            pulled.call()
            watcher.boundary()
    return pulled


def _pulled(step: Any, inputs: Sequence[Any], keywords: dict[str, Any]) -> Pulled:
    if isinstance(step, Workload):
        return _of_workload(step)
    if isinstance(step, torch.nn.Module):
        return Pulled(lambda: _forward(step, *inputs, **keywords), Workload(model=step, inputs=inputs))
    made = step(*inputs, **keywords)
    if isinstance(made, Workload):
        return _of_workload(made)
    if isinstance(made, torch.nn.Module | Generator) or inspect.isroutine(made):
        raise UsageError(
            f"the step returned a {type(made).__name__} and ran nothing of it; "
            "what makes a step returns gobrrr.Workload(step=...)"
        )
    return Pulled(lambda: step(*inputs, **keywords))


def _of_workload(workload: Workload) -> Pulled:
    call, inputs = step_of(workload, _forward)
    return Pulled(lambda: call(*inputs), workload)


def _forward(model: Any, *inputs: Any, **keywords: Any) -> Any:
    with torch.no_grad():
        return model(*inputs, **keywords)


def pull_named(watcher: Watcher, target: str) -> Pulled:
    """The same for "file.py:callable" or "package.module:callable"."""
    with loaded_as_before():
        return pull(watcher, find_callable(target), (), {})


@contextmanager
def loaded_as_before() -> Iterator[None]:
    """The search path, the arguments and the modules of a loaded file put back at the end."""
    path, arguments, known = list(sys.path), list(sys.argv), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        sys.argv[:] = arguments
        for name in set(sys.modules) - known:
            if name.startswith("_gobrrr_"):
                del sys.modules[name]


def user_line(error: BaseException) -> str:
    """ " at file.py:12", the innermost line of an error outside torch and installed packages.

    "" where there is none, or where gobrrr's own code was called from there and failed.
    """
    found, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if own(file):
            found = f" at {Path(file).name}:{trace.tb_lineno}"
        elif file.startswith(_HERE):
            found = ""
        trace = trace.tb_next
    return found
