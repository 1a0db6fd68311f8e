"""Calls of the program's own functions outside of modules: a program without modules is looked at by its functions."""

from __future__ import annotations

import inspect
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from gobrrr.observe.live.again.prefixes import Prefixes
from gobrrr.observe.live.again.regions import Invocation
from gobrrr.observe.live.watches.lines import function, user_line

RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of functions that do not return once: they are left out."""

MOST_TURNS = 512
"""Calls of one function that are compared; chosen."""


class Functions:
    """Call `enter` at each call and `leave` at each return. `within`: the call that each operation ran in, or -1."""

    def __init__(self) -> None:
        self.calls: list[Invocation] = []
        self.within: dict[int, int] = {}
        self.prefixes = Prefixes()
        self._count: Counter[CodeType] = Counter()
        self._open: list[tuple[int, int, tuple[Any, ...]]] = []  # number, frame, arguments

    @property
    def now(self) -> int:
        """The innermost call that is running."""
        return self._open[-1][0] if self._open else -1

    def enter(self, frame: FrameType) -> None:
        """A function begins."""
        code = frame.f_code
        self._count[code] += 1
        if code.co_flags & RESUMED or not code.co_argcount or self._count[code] > MOST_TURNS:
            return
        variables = frame.f_locals
        self.calls.append(Invocation(self.now, user_line(frame.f_back), f"{function(code.co_name)}()"))
        args = tuple(variables.get(name) for name in code.co_varnames[: code.co_argcount])
        self._open.append((len(self.calls) - 1, id(frame), args))

    def leave(self, frame: FrameType, value: Any) -> None:
        """A function returns `value`; None where an exception leaves it."""
        if self._open and self._open[-1][1] == id(frame):
            at, _, args = self._open.pop()
            self.prefixes.see(frame.f_code, args, value, at)
