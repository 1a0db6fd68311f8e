"""The time that lines of the program's functions take by themselves, without the calls that the interpreter reports.

A profiler has no frame for compiled code that is no built-in function (Cython's, as in NumPy's generators and pandas),
nor for what the interpreter itself does. Both count as time of the function that they are in; the line says where.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from gobrrr.model.recording import OwnTime
from gobrrr.observe.live.watches.lines import outwards, spelled

LEAST_OWN_NS = 50_000
"""Functions with less own time in a step are left out: what holds a step up takes 100 us and more."""

OWN_LINE_SHARE = 0.5
"""A line is named where it takes more than this share of its function's own time."""

BUILT_IN_TYPES = frozenset(name for name, var in vars(builtins).items() if isinstance(var, type))
"""The interpreter reports no call of these. They are not what is looked for."""


class LineTimes:
    """Adds up, by line, the time between calls and returns. Call `stop`, then `go`, at each call and return.

    Uses the interpreter's trace function, in functions of the program only. Measures nothing where the program has set
    one itself.
    """

    def __init__(self, mine: Callable[[CodeType], bool]) -> None:
        self._mine = mine
        self._ns: dict[CodeType, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._at: tuple[CodeType, int] | None = None
        self._since = 0
        self._on = False
        self._frames: list[FrameType] = []

    def open(self) -> None:
        """Begin, also in the functions that are running already."""
        if sys.gettrace() is not None:
            return
        frames = outwards(sys._getframe(1))
        self._frames = [frame for frame in frames if frame.f_trace is None and self._mine(frame.f_code)]
        for frame in self._frames:
            frame.f_trace = self._line
        self._on = True
        sys.settrace(self._call)

    def close(self) -> None:
        """Remove the trace function, unless the program has set another."""
        self._on, self._at = False, None
        for frame in self._frames:
            if frame.f_trace == self._line:
                frame.f_trace = None
        self._frames = []
        if sys.gettrace() == self._call:
            sys.settrace(None)

    def stop(self) -> None:
        """Stop counting for the line that runs now."""
        if self._at is not None:
            code, line = self._at
            self._ns[code][line] += time.perf_counter_ns() - self._since
            self._at = None

    def go(self, frame: FrameType | None) -> None:
        """Count for the line at which this frame runs."""
        if self._on and frame is not None and self._mine(frame.f_code):
            self._at = frame.f_code, frame.f_lineno
            self._since = time.perf_counter_ns()

    def found(self, called: set[tuple[CodeType, int, str]]) -> tuple[OwnTime, ...]:
        """The functions with much own time. `called`: (function, line, name) of the calls that were reported."""
        result = []
        for code, lines in self._ns.items():
            line, most = max(lines.items(), key=lambda item: item[1])
            total = sum(lines.values())
            if total < LEAST_OWN_NS:
                continue
            names = {name for name in _called_at(code, line) if (code, line, name) not in called}
            alone = most > OWN_LINE_SHARE * total
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


def _called_at(code: CodeType, line: int) -> set[str]:
    """The names of what a line calls, from its source; empty where that can't be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return set()
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    callees = [call.func for call in calls if call.lineno <= line <= (call.end_lineno or call.lineno)]
    names = {callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "") for callee in callees}
    return names - BUILT_IN_TYPES - {""}
