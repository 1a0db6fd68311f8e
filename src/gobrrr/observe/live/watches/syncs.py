"""Lines that make the host wait for the GPU in one step: torch's own warnings of them, and waits that are asked for."""

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

_SYNC = "called a synchronizing"  # "... CUDA operation": c10/cuda/CUDAFunctions.cpp
_PROTOTYPE = "Synchronization debug mode"
_OURS = f"({_SYNC}|{_PROTOTYPE})"
_WARN = 1
LONGEST = 80
"""Characters of a source line that are kept."""


class SyncWatch:
    """Open for one step, it counts by the user's line what makes the host wait.

    torch warns in C++ while the line that waited is still on the stack, in a backward pass at the call of `backward`.
    `torch.cuda.synchronize`, `Event.synchronize` and `Stream.synchronize` do not warn and are replaced until `close`;
    a program that imported `synchronize` by name before calls the plain one. torch's warnings do not cover collectives
    and sparse tensors. The program's warnings are shown as ever.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._restore: list[tuple[Any, str, Any, Any]] = []
        self._filter: Any = None
        self._mode: int | None = None
        self._counted = False

    def open(self) -> None:
        """Warn of waits, and take the warnings."""
        if self._restore:
            return
        self._put(warnings, "_showwarnmsg", self._show)
        self._take_warnings()
        for home, what in _homes():
            plain = getattr(home, "synchronize", None)
            if plain is not None:
                self._put(home, "synchronize", self._counting(plain, what))
        if torch.cuda.is_available():
            self._mode = int(torch.cuda.get_sync_debug_mode())
            torch.cuda.set_sync_debug_mode(_WARN)

    def close(self) -> None:
        """The mode, the filters and the functions are what they were, where the program did not change them since."""
        if self._mode is not None:
            if torch.cuda.get_sync_debug_mode() == _WARN:
                torch.cuda.set_sync_debug_mode(self._mode)
            self._mode = None
        filters: list[Any] = warnings.filters  # type: ignore[assignment]
        if self._filter is not None and any(one is self._filter for one in filters):
            del filters[next(at for at, one in enumerate(filters) if one is self._filter)]
        self._filter = None
        while self._restore:
            home, name, plain, ours = self._restore.pop()
            if getattr(home, name, None) is ours:
                setattr(home, name, plain)

    def found(self, steps: int = 1) -> tuple[HostSync, ...]:
        """The lines, most waits first, with how often each waited in a step."""
        return tuple(
            HostSync(source=source, what=what, count=count / steps)
            for (source, what), count in self._counts.most_common()
        )

    def _put(self, home: Any, name: str, ours: Any) -> None:
        self._restore.append((home, name, getattr(home, name), ours))
        setattr(home, name, ours)

    def _take_warnings(self) -> None:
        """Our filter first. Set past the module's functions, which would have it show the program's warnings again."""
        self._filter = ("always", re.compile(_OURS, re.IGNORECASE), Warning, None, 0)
        filters: list[Any] = warnings.filters  # type: ignore[assignment]
        filters.insert(0, self._filter)

    def _show(self, message: Any) -> None:
        text = str(message.message)
        if text.startswith(_SYNC):
            if not self._counted:
                self._count(sys._getframe(1), None)
        elif not text.startswith(_PROTOTYPE):
            plain = next(plain for home, name, plain, _ in self._restore if name == "_showwarnmsg")
            plain(message)

    def _counting(self, plain: Any, what: str) -> Any:
        def waiting(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if owner(frame.f_code.co_filename) is not Owner.GOBRRR:
                self._count(frame, what)
            counted, self._counted = self._counted, True  # a stream's wait warns as well
            try:
                return plain(*args, **kwargs)
            finally:
                self._counted = counted

        return waiting

    def _count(self, frame: FrameType | None, what: str | None) -> None:
        found = user_frame(frame)
        if found is None:
            self._counts["unknown", what or ""] += 1
            return
        file, line = found.f_code.co_filename, found.f_lineno
        if what is None:
            what = linecache.getline(file, line).strip()[:LONGEST]
        self._counts[spelled(file, line, found.f_code.co_name), what] += 1


def _homes() -> list[tuple[Any, str]]:
    """What has a `synchronize`, and what it is called."""
    return [
        (torch.cuda, "torch.cuda.synchronize"),
        (torch.cuda.Event, "Event.synchronize"),
        (torch.cuda.Stream, "Stream.synchronize"),
        (getattr(torch, "accelerator", None), "torch.accelerator.synchronize"),
    ]


@contextmanager
def looking() -> Iterator[SyncWatch]:
    """A watch that is open within the block, for one step; everything is as it was afterwards."""
    watch = SyncWatch()
    try:
        watch.open()
        yield watch
    finally:
        watch.close()
