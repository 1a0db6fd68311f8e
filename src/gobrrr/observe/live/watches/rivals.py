"""Other profilers of torch's: it has room for one at a time, so that ours makes way for the program's own."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import profiler as home


def recording() -> bool:
    """Whether one of torch's profilers records on this thread now."""
    return bool(torch._C._autograd._profiler_type().name != "NONE")


def about() -> bool:
    """Whether the program holds one of torch's profilers that may start to record at any step: it has not ended yet."""
    held = (thing for thing in gc.get_objects() if issubclass(type(thing), home.profile))
    return any(getattr(profiler, "kineto_results", None) is None for profiler in held)


class RivalWatch:
    """Calls `begins()` just before a profiler of the program's own starts, from `open()` to `close()`.

    torch would let it start beside ours, lose what ours has recorded, and crash where that is written. All of its
    profilers go through the two functions that are replaced meanwhile; `ours()` surrounds the start of our own.
    """

    def __init__(self, begins: Callable[[], None]) -> None:
        self._begins = begins
        self._ours = False
        self._undo: list[Callable[[], None]] = []

    def open(self) -> None:
        """Listen."""
        if not self._undo:
            self._undo = [
                self._told(where, name)
                for where, name in ((home.profile, "_prepare_trace"), (home, "_run_on_profiler_start"))
                if hasattr(where, name)
            ]

    def close(self) -> None:
        """torch's functions are what they were."""
        while self._undo:
            self._undo.pop()()

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What starts in the block is our own."""
        self._ours = True
        try:
            yield
        finally:
            self._ours = False

    def _told(self, where: Any, name: str) -> Callable[[], None]:
        plain, listening = getattr(where, name), True

        @functools.wraps(plain)
        def telling(*args: Any, **kwargs: Any) -> Any:
            if listening and not self._ours:
                self._begins()
            return plain(*args, **kwargs)

        def undo() -> None:
            nonlocal listening
            listening = False
            if getattr(where, name) is telling:
                setattr(where, name, plain)

        setattr(where, name, telling)
        return undo
