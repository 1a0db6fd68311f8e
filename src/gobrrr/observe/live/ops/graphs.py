"""CUDA graphs: a replay dispatches nothing, so the operations of its capture are recorded in its place."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from gobrrr.model.recording import RecordedCall, Site
from gobrrr.observe.installed import Owner, owner
from gobrrr.observe.live.ops.mode import DispatchRecorder, following
from gobrrr.observe.live.watches.lines import outwards
from gobrrr.observe.static.sites import Sites

_METHODS = ("capture_begin", "capture_end", "replay")
_COMPILER = f"{os.sep}_inductor{os.sep}"
"""The folder of torch's compiler: kernels of a graph that it captures are not dispatched."""


class Captured(NamedTuple):
    """The operations of a graph's capture. `site` of a call is an index into `sites`."""

    calls: tuple[RecordedCall, ...]
    sites: tuple[Site, ...]


class GraphBook:
    """Records captures from `open()` to `close()`, and calls `listener` at replays.

    Costs nothing except at captures; a replay calls one more function. A graph that the compiler captures is left out,
    because most of its work is not dispatched. `kind`: the class of graphs, torch.cuda.CUDAGraph.
    """

    def __init__(self, kind: Any = None) -> None:
        self.kind = torch.cuda.CUDAGraph if kind is None else kind
        self.listener: Callable[[Any], None] | None = None
        self.opened = False
        self._captured: WeakKeyDictionary[Any, Captured] = WeakKeyDictionary()
        self._current: tuple[Any, DispatchRecorder, AbstractContextManager[None]] | None = None
        self._undo: list[Callable[[], None]] = []

    @property
    def capturing(self) -> bool:
        """Whether a graph is being captured now: operations that are dispatched do not run."""
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
        """Restore the class."""
        self._leave()
        while self._undo:
            self._undo.pop()()
        self.opened = False

    def of(self, graph: Any) -> Captured | None:
        """The operations of the graph's capture; None if that was not seen."""
        return self._captured.get(graph)

    def _begin(self, graph: Any) -> None:
        self._leave()
        self._captured.pop(graph, None)
        if _by_compiler():
            return
        mode = DispatchRecorder(Sites())
        recording = following(mode)
        recording.__enter__()
        self._current = (graph, mode, recording)

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
    """Make a method call something before or after; returns what undoes it."""
    own = name in vars(kind)
    original = getattr(kind, name)

    @functools.wraps(original)
    def method(graph: Any, *args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(graph)
        result = original(graph, *args, **kwargs)
        if after is not None:
            after(graph)
        return result

    def undo() -> None:
        nonlocal before, after
        before = after = None  # also for whoever still holds the method
        if vars(kind).get(name) is not method:
            return
        if own:
            setattr(kind, name, original)
        else:
            delattr(kind, name)

    setattr(kind, name, method)
    return undo


def _by_compiler() -> bool:
    files = (frame.f_code.co_filename for frame in outwards(sys._getframe(1)))
    return any(_COMPILER in file and owner(file) is Owner.TORCH for file in files)
