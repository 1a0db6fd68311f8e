"""Executions of one line of the program, counted at no cost to other lines; and a way out of torch's own calls.

Python 3.12 and later can watch one line of one code object (sys.monitoring). Before that, a trace function is called at
each call of a Python function and traces only frames of that code. A torch function mode would cost a microsecond at
each of torch's functions instead, and a step can't begin inside its handler. Nothing is counted where a debugger or a
coverage tool already traces.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

from gobrrr.observe.live.watches.lines import outwards

_TOOL_IDS = (4, 3)
"""The ids of sys.monitoring that are reserved for no kind of tool."""


class LineCount(Protocol):
    """Calls a function before each execution of a line, until closed."""

    def open(self) -> bool:
        """Begin; False where another tool prevents it."""

    def close(self) -> None:
        """Restore everything."""


def counting(code: CodeType, line: int, then: Callable[[], None]) -> LineCount:
    """Calls `then()` before each execution of that line in this thread and process."""
    thread, pid = threading.get_ident(), os.getpid()

    def reached() -> None:
        if threading.get_ident() == thread and os.getpid() == pid:
            then()

    return MonitoredLine(code, line, reached) if hasattr(sys, "monitoring") else TracedLine(code, line, reached)


def begins(code: CodeType, line: int) -> int:
    """At how many places of the code the line begins: each is counted when it is passed."""
    lines = [number for _, _, number in code.co_lines() if number is not None]
    return sum(number == line and (at == 0 or lines[at - 1] != line) for at, number in enumerate(lines))


class MonitoredLine:
    """With sys.monitoring, on that code object alone."""

    def __init__(self, code: CodeType, line: int, then: Callable[[], None]) -> None:
        self._code, self._line, self._then = code, line, then
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self._tool: int | None = None

    def open(self) -> bool:
        """False where both of the free tool ids are taken."""
        for tool in _TOOL_IDS:
            if self._monitoring.get_tool(tool) is None:
                self._monitoring.use_tool_id(tool, "gobrrr")
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
        """Free the tool's id."""
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
        for frame in outwards(sys._getframe(1)):
            if frame.f_code is self._code:
                frame.f_trace = self._in_frame
        sys.settrace(self._call)
        return True

    def close(self) -> None:
        """Remove the trace function, unless somebody has set another."""
        if sys.gettrace() == self._call:
            sys.settrace(None)
        for frame in outwards(sys._getframe(1)):
            if frame.f_trace == self._in_frame:
                frame.f_trace = None

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._in_frame if frame.f_code is self._code else None

    def _in_frame(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno == self._line:
            self._then()
        return self._in_frame


class Escape:
    """Calls `then()` once, at the next line of the waiting frames at which `ready()` is true.

    Inside a handler of torch's functions the stack of modes can't be changed: torch restores it after the handler.
    """

    def __init__(self, ready: Callable[[], bool], then: Callable[[], None]) -> None:
        self._ready, self._then = ready, then
        self._frames: list[FrameType] = []

    def open(self, frame: FrameType) -> bool:
        """Wait in this frame and those that called it. False where something traces already."""
        if sys.gettrace() is not None:
            return False
        self._frames = [waiting for waiting in outwards(frame) if waiting.f_trace is None]
        for waiting in self._frames:
            waiting.f_trace = self._in_frame
        sys.settrace(self._call)
        return True

    def close(self) -> None:
        """Stop tracing."""
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
