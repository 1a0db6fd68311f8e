"""Other torch profilers: only one can record at a time, so ours gives way to the program's own."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import profiler as home


def recording() -> bool:
    """Whether a torch profiler records on this thread now."""
    return bool(torch._C._autograd._profiler_type().name != "NONE")


def about() -> bool:
    """Whether the program holds a torch profiler that may start to record at any step: one that has not ended."""
    held = (thing for thing in gc.get_objects() if issubclass(type(thing), home.profile))
    return any(getattr(profiler, "kineto_results", None) is None for profiler in held)


class RivalWatch:
    """Calls `begins()` just before a profiler of the program starts, from `open()` to `close()`.

    torch would let it start beside ours, lose what ours has recorded, and crash when that is written out. All torch
    profilers go through the two functions that are replaced here. Start our own profiler within `ours()`.
    """

    def __init__(self, begins: Callable[[], None]) -> None:
        self._begins = begins
        self._ours = False
        self._undo: list[Callable[[], None]] = []

    def open(self) -> None:
        """Replace torch's functions."""
        if not self._undo:
            self._undo = [
                self._replaced(owner, name)
                for owner, name in ((home.profile, "_prepare_trace"), (home, "_run_on_profiler_start"))
                if hasattr(owner, name)
            ]

    def close(self) -> None:
        """Restore torch's functions."""
        while self._undo:
            self._undo.pop()()

    @contextmanager
    def ours(self) -> Iterator[None]:
        """A profiler that starts in the block is our own."""
        self._ours = True
        try:
            yield
        finally:
            self._ours = False

    def _replaced(self, owner: Any, name: str) -> Callable[[], None]:
        """Make torch's function call `begins` first; what is returned restores it."""
        original, listening = getattr(owner, name), True

        @functools.wraps(original)
        def starting(*args: Any, **kwargs: Any) -> Any:
            if listening and not self._ours:
                self._begins()
            return original(*args, **kwargs)

        def undo() -> None:
            nonlocal listening
            listening = False
            if getattr(owner, name) is starting:
                setattr(owner, name, original)

        setattr(owner, name, starting)
        return undo
