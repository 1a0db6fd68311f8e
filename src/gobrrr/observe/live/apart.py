"""Beside the modes that a program has put on (TorchDispatchMode, TorchFunctionMode): they see no operation of ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import _len_torch_dispatch_stack_pre_dispatch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)


@contextmanager
def apart() -> Iterator[None]:
    """What runs in the block goes through no mode; all of them are on again behind it."""
    # asked first: taking them off is Python of its own, which a profiler records
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or _before_dispatch():
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            yield
    else:
        yield


def _before_dispatch() -> bool:
    return bool(_len_torch_dispatch_stack_pre_dispatch())


@contextmanager
def beneath(mode: TorchDispatchMode) -> Iterator[None]:
    """A mode of ours on, below all of the program's: it sees what these let through, and they nothing that it does.

    The program may put modes on and take them off meanwhile: each takes off the topmost, which is never ours.
    """
    above = _lifted(None)
    try:
        mode.__enter__()
    finally:
        _put(above)
    try:
        yield
    finally:
        if any(one is mode for one in _get_current_dispatch_mode_stack()):
            _take_off(mode, above)


def _take_off(mode: TorchDispatchMode, before: list[Any]) -> None:
    """Our mode off the stack. `before`: the modes that were there when it came."""
    above = _lifted(mode)
    later = [one for one in above if not any(one is other for other in before)]
    if len(_get_current_dispatch_mode_stack()) == 1 and len(later) == len(above):
        _flagged(mode, None)
    try:
        if later:
            _flagged(later[-1], mode)
            _pop_mode()
        else:
            mode.__exit__(None, None, None)
    finally:
        _put(above)


def _flagged(mode: Any, as_of: Any) -> None:
    """A mode remembers whether others were on when it came, for torch to know so when it has gone.

    It takes that over from a mode that was there before it and goes earlier; None: there is none of these any more.
    """
    for name, value in vars(mode).items():
        if name.startswith("old_") and isinstance(value, deque) and value:
            value[0] = vars(as_of)[name][0] if as_of is not None else False


def _lifted(until: TorchDispatchMode | None) -> list[Any]:
    """The program's modes down to one of them, off, the topmost first. Torch's own (of fake tensors) lie lower."""
    found: list[Any] = []
    for one in reversed(_get_current_dispatch_mode_stack()):
        if one is until or getattr(one, "_mode_key", None) is not None:
            break
        found.append(_pop_mode())
    return found


def _put(modes: list[Any]) -> None:
    for mode in reversed(modes):
        _push_mode(mode)
