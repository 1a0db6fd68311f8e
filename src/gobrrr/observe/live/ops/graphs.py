"""CUDA graphs: what was dispatched while each was captured stands for its replays, which dispatch nothing."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from gobrrr.model.recording import RecordedCall, Site
from gobrrr.observe.installed import Owner, owner
from gobrrr.observe.live.ops.mode import Dispatched, following
from gobrrr.observe.static.sites import Sites

_METHODS = ("capture_begin", "capture_end", "replay")
_COMPILER = f"{os.sep}_inductor{os.sep}"
"""The folder of torch's whose frames capture what the compiler made: its own kernels are not dispatched."""


class Captured(NamedTuple):
    """What a graph's capture dispatched. `site` of a call is an index into `sites`."""

    calls: tuple[RecordedCall, ...]
    sites: tuple[Site, ...]


class GraphBook:
    """Remembers captures from `open()` to `close()`, and tells a listener of replays.

    Costs nothing but where a graph is captured; a replay calls one more function. A graph that the compiler captured
    is not remembered, as most of its work is not dispatched. `kind`: the class of graphs, torch.cuda.CUDAGraph.
    """

    def __init__(self, kind: Any = None) -> None:
        self.kind = torch.cuda.CUDAGraph if kind is None else kind
        self.listener: Callable[[Any], None] | None = None
        self.opened = False
        self._captured: WeakKeyDictionary[Any, Captured] = WeakKeyDictionary()
        self._current: tuple[Any, Dispatched, AbstractContextManager[None]] | None = None
        self._undo: list[Callable[[], None]] = []

    @property
    def capturing(self) -> bool:
        """Whether a graph is being captured now: what is dispatched does not run."""
        return self._current is not None

    def open(self) -> None:
        """Follow captures from now on."""
        if self.opened:
            return
        self.opened = True
        for name, before, after in zip(
            _METHODS, (None, self._end, self._replayed), (self._begin, None, None), strict=True
        ):
            self._undo.append(_patched(self.kind, name, before, after))

    def close(self) -> None:
        """The class as it was."""
        self._leave()
        while self._undo:
            self._undo.pop()()
        self.opened = False

    def of(self, graph: Any) -> Captured | None:
        """What the graph's capture dispatched; None if that was not seen."""
        return self._captured.get(graph)

    def _begin(self, graph: Any) -> None:
        self._leave()
        self._captured.pop(graph, None)
        if _by_compiler():
            return
        mode = Dispatched(Sites())
        on = following(mode)
        on.__enter__()
        self._current = (graph, mode, on)

    def _end(self, graph: Any) -> None:
        current = self._current
        self._leave()
        if current is not None and current[0] is graph:
            mode = current[1]
            self._captured[graph] = Captured(mode.finished(), tuple(mode.sites.found))

    def _replayed(self, graph: Any) -> None:
        if self.listener is not None:
            self.listener(graph)

    def _leave(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current[2].__exit__(None, None, None)


def _patched(
    kind: Any, name: str, before: Callable[[Any], None] | None, after: Callable[[Any], None] | None
) -> Callable[[], None]:
    """Put a method in the place of another, with something done before or after; what is returned undoes it."""
    own = name in vars(kind)
    plain = getattr(kind, name)

    @functools.wraps(plain)
    def method(graph: Any, *args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(graph)
        result = plain(graph, *args, **kwargs)
        if after is not None:
            after(graph)
        return result

    def undo() -> None:
        nonlocal before, after
        before = after = None  # also for who took hold of the method meanwhile
        if vars(kind).get(name) is not method:
            return
        if own:
            setattr(kind, name, plain)
        else:
            delattr(kind, name)

    setattr(kind, name, method)
    return undo


def _by_compiler() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if _COMPILER in file and owner(file) is Owner.TORCH:
            return True
        frame = frame.f_back
    return False
