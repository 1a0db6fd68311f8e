"""Calls a step as often as the watcher needs: a callable, a module or a Workload."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gobrrr.errors import UsageError
from gobrrr.model.workload import Workload
from gobrrr.observe import stepping
from gobrrr.observe.installed import Owner, owner
from gobrrr.observe.live.frames import current_folder
from gobrrr.observe.live.watcher import Watcher
from gobrrr.observe.live.watches.rivals import recording
from gobrrr.observe.targets import step_of

MOST_PULLED_STEPS = 1_000
"""Calls after which the step is not called again, whatever the watcher needs; chosen."""
MOST_DISTURBED = 3
"""Steps that start a profiler of their own, after which every step is assumed to; chosen."""


@dataclass(frozen=True)
class Pulled:
    """A step that can be called again. `workload`: what it is made of, where it came as a Workload or a module."""

    call: Callable[[], Any]
    workload: Workload | None = None


def pull(
    watcher: Watcher,
    step: Any,
    inputs: Sequence[Any],
    keywords: dict[str, Any],
    ready: Callable[[Workload | None], None] | None = None,
) -> Pulled:
    """Run the step until the watcher has seen enough. What the step raises passes through.

    Where the first call returns a Workload, its step is run instead. `ready` is called with the workload before the
    step is run repeatedly, and may raise. Raises UsageError where a call returns a module, a generator or a function,
    and so ran nothing.
    """
    if recording():
        raise UsageError(
            "one of torch's profilers records already, and two can't at once: diagnose the step outside it"
        )
    watcher.open()
    try:
        pulled = _pulled(step, inputs, keywords)
        if ready is not None:
            ready(pulled.workload)
        watcher.boundary()
        for _ in range(MOST_PULLED_STEPS):
            if watcher.done or watcher.disturbed >= MOST_DISTURBED:
                break
            pulled.call()
            watcher.boundary()
    finally:
        watcher.close()
    return pulled


def _pulled(step: Any, inputs: Sequence[Any], keywords: dict[str, Any]) -> Pulled:
    if isinstance(step, Workload):
        return _of_workload(step)
    if isinstance(step, torch.nn.Module):
        return Pulled(lambda: _forward(step, *inputs, **keywords), Workload(model=step, inputs=inputs))
    result = _called(step, *inputs, **keywords)
    if isinstance(result, Workload):
        return _of_workload(result)
    if inspect.iscoroutine(result):
        result.close()
        raise UsageError("the step is asynchronous and ran nothing: give a function that calls asyncio.run(...)")
    if isinstance(result, torch.nn.Module | Generator | AsyncGenerator | partial) or inspect.isroutine(result):
        raise UsageError(
            f"the step returned a {type(result).__name__} and ran nothing of it; "
            "what makes a step returns gobrrr.Workload(step=...)"
        )
    return Pulled(lambda: _called(step, *inputs, **keywords))


def _of_workload(workload: Workload) -> Pulled:
    call, inputs = step_of(workload, _forward)
    return Pulled(lambda: _called(call, *inputs), workload)


def _called(step: Any, *inputs: Any, **keywords: Any) -> Any:
    """Call the user's step. By this frame `user_line` knows errors of the call itself, such as wrong arguments."""
    return step(*inputs, **keywords)


def _forward(model: Any, *inputs: Any, **keywords: Any) -> Any:
    with torch.no_grad():
        return model(*inputs, **keywords)


def workload_of(step: Any, inputs: Sequence[Any], keywords: dict[str, Any]) -> Workload:
    """A step and its arguments as a Workload, whose state can be copied."""
    if isinstance(step, Workload):
        return step
    if isinstance(step, torch.nn.Module):
        return Workload(model=step, inputs=(*inputs, *keywords.values()))
    return Workload(step=partial(step, *inputs, **keywords))


@contextmanager
def loaded_as_before() -> Iterator[None]:
    """Puts back the search path, the arguments and the current folder, and removes modules that were loaded by file."""
    path, arguments, known, folder = list(sys.path), list(sys.argv), set(sys.modules), current_folder()
    try:
        yield
    finally:
        sys.path[:] = path
        sys.argv[:] = arguments
        if folder and current_folder() != folder:
            with suppress(OSError):  # it is gone
                os.chdir(folder)
        for name in set(sys.modules) - known:
            if name.startswith("_gobrrr_"):
                del sys.modules[name]


def user_line(error: BaseException) -> str:
    """ " at file.py:12", the innermost line of an error outside torch and installed packages.

    " when it was called" where the call itself failed; "" where code of gobrrr that was called from there failed.
    """
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        whose = owner(file)
        if whose is Owner.USER:
            place = f" at {Path(file).name}:{trace.tb_lineno}"
        elif whose is Owner.GOBRRR:
            calling = trace.tb_frame.f_code in _CALLING or file == stepping.__file__
            place = " when it was called" if calling else ""
        trace = trace.tb_next
    return place


_CALLING = (_called.__code__, _forward.__code__)
"""The functions that call the user's step."""
