"""What the lines of the program's own functions take by themselves, without the calls that the interpreter tells of.

A profiler has no frame for compiled code that is no built-in function (Cython's, as in NumPy's generators and pandas),
nor for what the interpreter itself does. Both are time of the function that they are in; the line tells where.
"""

from __future__ import annotations

import ast
import linecache
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from gobrrr.model.recording import OwnTime
from gobrrr.observe.live.watches.lines import spelled

LEAST_NS = 50_000
"""Functions with less in a step are left out: what holds a step goes on for 100 us and more."""

MOST = 0.5
"""A line is told with more than this share of its function's own time."""

BUILT_IN_TYPES = frozenset(name for name, var in vars(__import__("builtins")).items() if isinstance(var, type))
"""The interpreter does not tell of a call of these: they are not what is looked for."""


class LineTimes:
    """Told of each call and return (`stop`, then `go`), it adds up the time in between, by line.

    It uses the interpreter's trace function, and only in functions of the program. Where the program has one of its own
    nothing is measured.
    """

    def __init__(self, mine: Callable[[CodeType], bool]) -> None:
        self._mine = mine
        self._ns: dict[CodeType, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._at: tuple[CodeType, int] | None = None
        self._since = 0
        self._on = False
        self._frames: list[FrameType] = []

    def open(self) -> None:
        """Begin, in the functions that run already as well."""
        if sys.gettrace() is not None:
            return
        self._frames = [one for one in _around(sys._getframe(1)) if one.f_trace is None and self._mine(one.f_code)]
        for frame in self._frames:
            frame.f_trace = self._line
        self._on = True
        sys.settrace(self._call)

    def close(self) -> None:
        """No trace function, unless the program has put in another."""
        self._on, self._at = False, None
        for frame in self._frames:
            if frame.f_trace == self._line:
                frame.f_trace = None
        self._frames = []
        if sys.gettrace() == self._call:
            sys.settrace(None)

    def stop(self) -> None:
        """The line that runs is left, for now."""
        if self._at is not None:
            code, line = self._at
            self._ns[code][line] += time.perf_counter_ns() - self._since
            self._at = None

    def go(self, frame: FrameType | None) -> None:
        """A function goes on where its frame is."""
        if self._on and frame is not None and self._mine(frame.f_code):
            self._at = frame.f_code, frame.f_lineno
            self._since = time.perf_counter_ns()

    def found(self, called: set[tuple[CodeType, int, str]]) -> tuple[OwnTime, ...]:
        """The functions with much time of their own. `called`: (function, line, name) of calls that were told of."""
        result = []
        for code, lines in self._ns.items():
            line, most = max(lines.items(), key=lambda item: item[1])
            total = sum(lines.values())
            if total < LEAST_NS:
                continue
            names = {name for name in _called_at(code, line) if (code, line, name) not in called}
            alone = most > MOST * total
            result.append(
                OwnTime(
                    caller=spelled(code.co_filename, code.co_firstlineno, code.co_name),
                    source=spelled(code.co_filename, line, code.co_name) if alone else None,
                    callee=names.pop() if alone and len(names) == 1 else "",
                )
            )
        return tuple(result)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if self._mine(frame.f_code) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.stop()
            self.go(frame)
        return self._line


def _around(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _called_at(code: CodeType, line: int) -> set[str]:
    """The names of what a line calls, by its text; nothing where that can't be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return set()
    calls = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call) and one.lineno <= line <= _last(one)]
    names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    return names - BUILT_IN_TYPES - {""}


def _last(call: ast.Call) -> int:
    return call.end_lineno or call.lineno
