"""Which line of a program without modules and optimizers runs once a step, found by repetition.

During the search a torch function mode notes the program's line that calls each of torch's functions. The sequence of
these lines repeats; its outermost period is the step.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from gobrrr.observe.installed import Owner, owner
from gobrrr.observe.live.loops.repetition import Repetition, once, outermost
from gobrrr.observe.live.loops.step_lines import Escape, begins

SEARCH_S = 1.0
"""Seconds that a repetition must have lasted: an inner loop (over layers) seldom does. Chosen."""
LONG_S = 5.0
"""The same where something else came between; chosen."""
MOST_SEARCHED_CALLS = 400_000
"""Calls of torch's functions after which the search is given up; chosen."""
LATEST_EVENTS = 20_000
"""The latest calls, in which a repetition is searched; chosen."""
FIRST_CHECK, _FEW = 32, 24
"""Calls before the first check, and at least between two checks; chosen."""

_SKIPPED = (Owner.TORCH, Owner.GOBRRR)
"""Owners of frames that are no part of the program."""
Site = tuple[CodeType, int]


class SiteSearch(TorchFunctionMode):
    """Calls `found(site)` or `given_up(why)` once, outside of torch's functions and with the mode removed.

    `inner()`: whether what repeats now is certainly within a step of the program.
    """

    def __init__(
        self,
        found: Callable[[Site], None],
        given_up: Callable[[str], None],
        search_s: float = SEARCH_S,
        inner: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self._found, self._given_up, self._search_s = found, given_up, search_s
        self._inner = inner
        self._live = False
        self._pid = self._thread = 0
        self._escape: Escape | None = None
        self._sites: list[Site] = []
        self._since_new = 0  # events since a line came for the first time
        self._known: dict[Site, int] = {}
        self.calls = 0
        self._events: list[int] = []
        self._times: list[float] = []
        self._next = FIRST_CHECK

    def open(self) -> None:
        """Put the mode onto this thread's stack of modes."""
        self._pid, self._thread, self._live = os.getpid(), threading.get_ident(), True
        _push_mode(self)

    def close(self) -> None:
        """Take the mode off the stack, wherever in it it is by now."""
        self._live = False
        if self._escape is not None:
            self._escape.close()
        if self._there():
            above = []
            while (mode := _pop_mode()) is not self:
                above.append(mode)
            for mode in reversed(above):
                _push_mode(mode)
        self._events, self._times = [], []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call one of torch's functions as usual, and note the line."""
        if self._live and not torch.compiler.is_compiling():
            self._note(sys._getframe().f_back)
        return func(*args, **(kwargs or {}))

    def _there(self) -> bool:
        return any(mode is self for mode in _get_current_function_mode_stack())

    def _note(self, frame: FrameType | None) -> None:
        if threading.get_ident() != self._thread or os.getpid() != self._pid:
            return
        while frame is not None and _skipped(frame.f_code):
            frame = frame.f_back
        if frame is None:
            return
        site = (frame.f_code, frame.f_lineno)
        event = self._known.setdefault(site, len(self._sites))
        if event == len(self._sites):
            self._sites.append(site)
            self._since_new = 0
        self._since_new += 1
        self.calls += 1
        self._events.append(event)
        self._times.append(time.perf_counter())
        if len(self._events) >= self._next:
            self._check(frame)

    def _check(self, frame: FrameType) -> None:
        if len(self._events) >= 2 * LATEST_EVENTS:
            del self._events[:-LATEST_EVENTS], self._times[:-LATEST_EVENTS]
        # Each check takes time in proportion to the calls so far: a quarter more of them before the next.
        self._next = min(len(self._events) + max(_FEW, len(self._events) // 4), 2 * LATEST_EVENTS)
        if self._times[-1] - self._times[0] < self._search_s:
            return
        repetition = outermost(self._events[-LATEST_EVENTS:])
        if repetition is not None and self._lasts(repetition) and not self._inner():
            anchors = once(self._events, repetition)
            if anchors:
                site = self._best(anchors)
                self._leave(frame, lambda: self._found(site))
        elif self.calls > MOST_SEARCHED_CALLS:
            self._leave(frame, lambda: self._given_up(f"nothing repeated in {self.calls:,} calls of torch's functions"))

    def _lasts(self, repetition: Repetition) -> bool:
        """Whether it lasted long enough and covers everything since the last new line.

        An inner loop does not: lines of the outer loop follow it. A repetition that lasts LONG_S need only cover half:
        a loop may do something else now and then.
        """
        seconds = self._times[-1] - self._times[-repetition.covered]
        since_new = min(self._since_new, LATEST_EVENTS)
        if repetition.covered >= since_new:
            return seconds >= self._search_s
        return 2 * repetition.covered >= since_new and seconds >= max(LONG_S, self._search_s)

    def _best(self, anchors: list[int]) -> Site:
        """The line that is counted the fewest times when it runs; the first of several."""
        sites = [self._sites[anchor] for anchor in anchors]
        return min(sites, key=lambda site: begins(*site))

    def _leave(self, frame: FrameType, then: Callable[[], None]) -> None:
        def outside() -> None:
            self.close()
            then()

        self._live = False
        self._escape = Escape(self._there, outside)
        if not self._escape.open(frame):
            self._given_up("a debugger or a coverage tool traces the program")


def _skipped(code: CodeType) -> bool:
    """Whether it is code of torch or of ours, or a handler of torch's functions: the program's line called it."""
    file = code.co_filename
    return code.co_name == "__torch_function__" or file.startswith("<frozen") or owner(file) in _SKIPPED
