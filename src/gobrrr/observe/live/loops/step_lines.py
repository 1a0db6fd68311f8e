"""Executions of one line of the program, counted at no cost elsewhere; and a way out of torch's own calls.

Python 3.12 and later watch one line of one code object (sys.monitoring). Before that a trace function is asked at each
call of a Python function and answers only for frames of that code; a torch function mode would instead cost a
microsecond at each of torch's functions, and its handler is no place to begin a step in. Where a debugger or a coverage
tool already traces, nothing is counted.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Protocol

_TOOLS = (4, 3)  # sys.monitoring's ids that no kind of tool has claimed
NAME = "gobrrr"


class LineCount(Protocol):
    """Calls a function before each execution of a line, until closed."""

    def open(self) -> bool:
        """Begin; False where another tool is in the way."""

    def close(self) -> None:
        """Everything as it was."""


def counting(code: CodeType, line: int, then: Callable[[], None]) -> LineCount:
    """Count that line's executions in this thread and process."""
    here, pid = threading.get_ident(), os.getpid()

    def noted() -> None:
        if threading.get_ident() == here and os.getpid() == pid:
            then()

    return MonitoredLine(code, line, noted) if hasattr(sys, "monitoring") else TracedLine(code, line, noted)


def begins(code: CodeType, line: int) -> int:
    """In how many places of the code the line begins: it is counted once for each that is passed."""
    lines = [at for _, _, at in code.co_lines() if at is not None]
    return sum(one == line and (i == 0 or lines[i - 1] != line) for i, one in enumerate(lines))


class MonitoredLine:
    """With sys.monitoring, on that code object alone."""

    def __init__(self, code: CodeType, line: int, then: Callable[[], None]) -> None:
        self._code, self._line, self._then = code, line, then
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self._tool: int | None = None

    def open(self) -> bool:
        """False where both of the free tool ids are taken."""
        for tool in _TOOLS:
            if self._monitoring.get_tool(tool) is None:
                self._monitoring.use_tool_id(tool, NAME)
                self._tool = tool
                break
        else:
            return False
        event = self._monitoring.events.LINE
        self._monitoring.register_callback(self._tool, event, self._passed)
        self._monitoring.set_local_events(self._tool, self._code, event)
        self._monitoring.restart_events()
        return True

    def close(self) -> None:
        """Give the tool's id back."""
        if self._tool is not None:
            self._monitoring.set_local_events(self._tool, self._code, 0)
            self._monitoring.register_callback(self._tool, self._monitoring.events.LINE, None)
            self._monitoring.free_tool_id(self._tool)
            self._tool = None

    def _passed(self, code: CodeType, line: int) -> Any:
        if line != self._line:
            return self._monitoring.DISABLE  # this place costs nothing from now on
        if self._tool is not None:
            self._then()
        return None


class TracedLine:
    """With sys.settrace, for frames of that code object alone."""

    def __init__(self, code: CodeType, line: int, then: Callable[[], None]) -> None:
        self._code, self._line, self._then = code, line, then

    def open(self) -> bool:
        """False where something traces already."""
        if sys.gettrace() is not None:
            return False
        for frame in _frames(sys._getframe(1)):
            if frame.f_code is self._code:
                frame.f_trace = self._in_frame
        sys.settrace(self._call)
        return True

    def close(self) -> None:
        """No trace function, unless somebody has put in another."""
        if sys.gettrace() == self._call:
            sys.settrace(None)
        for frame in _frames(sys._getframe(1)):
            if frame.f_trace == self._in_frame:
                frame.f_trace = None

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._in_frame if frame.f_code is self._code else None

    def _in_frame(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno == self._line:
            self._then()
        return self._in_frame


class Escape:
    """Calls `then()` at the next line of the frames that wait, as soon as `ready()`; used once.

    From inside a handler of torch's functions the stack of modes can't be changed: it is put back as it was behind the
    handler's back.
    """

    def __init__(self, ready: Callable[[], bool], then: Callable[[], None]) -> None:
        self._ready, self._then = ready, then
        self._frames: list[FrameType] = []

    def open(self, frame: FrameType) -> bool:
        """Wait in this frame and those that called it. False where something traces already."""
        if sys.gettrace() is not None:
            return False
        self._frames = [one for one in _frames(frame) if one.f_trace is None]
        for one in self._frames:
            one.f_trace = self._in_frame
        sys.settrace(self._call)
        return True

    def close(self) -> None:
        """Nothing traced."""
        for frame in self._frames:
            if frame.f_trace == self._in_frame:
                frame.f_trace = None
        self._frames = []
        if sys.gettrace() == self._call:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return None

    def _in_frame(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and self._ready():
            self.close()
            self._then()
        return None


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
