"""Lines that make the host wait for the GPU in one step: by torch's warnings, and by the program's explicit waits."""

from __future__ import annotations

import linecache
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from gobrrr.model.live import HostSync
from gobrrr.observe.installed import Owner, owner
from gobrrr.observe.live.watches.lines import spelled, user_frame
from gobrrr.observe.live.watches.sync_mode import set_sync_mode

_SYNC = "called a synchronizing"  # "... CUDA operation": c10/cuda/CUDAFunctions.cpp
_WARN = 1
LONGEST_SYNC_LINE = 80
"""Characters of a source line that are kept; chosen."""


class SyncWatch:
    """Counts, in one step, how often each line of the user makes the host wait.

    torch warns in C++ while the line that waited is still on the stack; in a backward pass that is the call of
    `backward`. `torch.cuda.synchronize`, `Event.synchronize` and `Stream.synchronize` do not warn, so they are replaced
    until `close`. A program that imported `synchronize` by name before calls the original, which is not counted. torch
    does not warn of collectives and sparse tensors. The program's own warnings are shown as usual.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._restore: list[tuple[Any, str, Any, Any]] = []
        self._filter: Any = None
        self._mode: int | None = None
        self._counted = False

    def open(self) -> None:
        """Make torch warn of waits, and receive the warnings."""
        if self._restore:
            return
        self._put(warnings, "_showwarnmsg", self._show)
        self._take_warnings()
        for owner_of_wait, what in _with_synchronize():
            original = getattr(owner_of_wait, "synchronize", None)
            if original is not None:
                self._put(owner_of_wait, "synchronize", self._counting(original, what))
        if torch.cuda.is_available():
            self._mode = int(torch.cuda.get_sync_debug_mode())
            set_sync_mode(_WARN)

    def close(self) -> None:
        """Restore the mode, the filters and the functions, except those that the program has changed since."""
        if self._mode is not None:
            if torch.cuda.get_sync_debug_mode() == _WARN:
                set_sync_mode(self._mode)
            self._mode = None
        filters: list[Any] = warnings.filters  # type: ignore[assignment]
        at = next((at for at, entry in enumerate(filters) if entry is self._filter), None)
        if at is not None:
            del filters[at]
        self._filter = None
        while self._restore:
            target, name, original, replacement = self._restore.pop()
            if getattr(target, name, None) is replacement:
                setattr(target, name, original)

    def found(self, steps: int = 1) -> tuple[HostSync, ...]:
        """The lines with the most waits first, each with its waits per step."""
        return tuple(
            HostSync(source=source, what=what, count=count / steps)
            for (source, what), count in self._counts.most_common()
        )

    def _put(self, target: Any, name: str, replacement: Any) -> None:
        self._restore.append((target, name, getattr(target, name), replacement))
        setattr(target, name, replacement)

    def _take_warnings(self) -> None:
        """Our filter first. Set past the module's functions, which would have it show the program's warnings again."""
        self._filter = ("always", re.compile(_SYNC, re.IGNORECASE), Warning, None, 0)
        filters: list[Any] = warnings.filters  # type: ignore[assignment]
        filters.insert(0, self._filter)

    def _show(self, message: Any) -> None:
        if str(message.message).startswith(_SYNC):
            if not self._counted:
                self._count(sys._getframe(1), None)
        else:
            original = next(original for _, name, original, _ in self._restore if name == "_showwarnmsg")
            original(message)

    def _counting(self, original: Any, what: str) -> Any:
        def waiting(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if owner(frame.f_code.co_filename) is not Owner.GOBRRR:
                self._count(frame, what)
            counted, self._counted = self._counted, True  # a stream's wait warns as well
            try:
                return original(*args, **kwargs)
            finally:
                self._counted = counted

        return waiting

    def _count(self, frame: FrameType | None, what: str | None) -> None:
        caller = user_frame(frame)
        if caller is None:
            self._counts["unknown", what or ""] += 1
            return
        file, line = caller.f_code.co_filename, caller.f_lineno
        if what is None:
            what = linecache.getline(file, line).strip()[:LONGEST_SYNC_LINE]
        self._counts[spelled(file, line, caller.f_code.co_name), what] += 1


def _with_synchronize() -> list[tuple[Any, str]]:
    """The modules and classes that have a `synchronize`, and its full name."""
    return [
        (torch.cuda, "torch.cuda.synchronize"),
        (torch.cuda.Event, "Event.synchronize"),
        (torch.cuda.Stream, "Stream.synchronize"),
        (getattr(torch, "accelerator", None), "torch.accelerator.synchronize"),
    ]


@contextmanager
def looking() -> Iterator[SyncWatch]:
    """A watch that is open within the block, for one step; restores everything afterwards."""
    watch = SyncWatch()
    try:
        watch.open()
        yield watch
    finally:
        watch.close()
