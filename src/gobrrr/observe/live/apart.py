"""Keeps our operations out of the modes that the program has entered (TorchDispatchMode, TorchFunctionMode)."""

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
    """What runs in the block goes through no mode. Afterwards all modes are on again."""
    # asked first: disabling modes runs Python code, which a profiler would record
    if (
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or _len_torch_dispatch_stack_pre_dispatch()
    ):
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            yield
    else:
        yield


@contextmanager
def beneath(mode: TorchDispatchMode) -> Iterator[None]:
    """Enter a mode of ours below all of the program's: it sees what they pass on, and they see nothing that it does.

    The program may enter and leave modes meanwhile: leaving removes the topmost one, which is never ours.
    """
    above = _lifted(None)
    try:
        mode.__enter__()
    finally:
        _put(above)
    try:
        yield
    finally:
        if any(entered is mode for entered in _get_current_dispatch_mode_stack()):
            _take_off(mode, above)


def _take_off(mode: TorchDispatchMode, before: list[Any]) -> None:
    """Take our mode off the stack. `before`: the modes above it when it was entered."""
    above = _lifted(mode)
    later = [other for other in above if not any(other is earlier for earlier in before)]
    if len(_get_current_dispatch_mode_stack()) == 1 and len(later) == len(above):
        _set_flags(mode, None)
    try:
        if later:
            _set_flags(later[-1], mode)
            _pop_mode()
        else:
            mode.__exit__(None, None, None)
    finally:
        _put(above)


def _set_flags(mode: Any, as_of: Any) -> None:
    """Give a mode the flags of another (None: all False).

    A mode stores whether others were on when it was entered, and torch restores that when it is left. When a mode is
    left before one that was entered later, the later one needs its flags.
    """
    for name, value in vars(mode).items():
        if name.startswith("old_") and isinstance(value, deque) and value:
            value[0] = vars(as_of)[name][0] if as_of is not None else False


def _lifted(until: TorchDispatchMode | None) -> list[Any]:
    """Take off the program's modes above `until`, and return them, the topmost first.

    Stops at torch's own modes (of fake tensors), which are below the program's.
    """
    modes: list[Any] = []
    for mode in reversed(_get_current_dispatch_mode_stack()):
        if mode is until or getattr(mode, "_mode_key", None) is not None:
            break
        modes.append(_pop_mode())
    return modes


def _put(modes: list[Any]) -> None:
    for mode in reversed(modes):
        _push_mode(mode)
