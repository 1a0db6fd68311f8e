"""Functions that the program compiles: a decode loop often calls a compiled function, not a module.

`torch.compile` is replaced until the loop is known. What it returns for a function is wrapped. The program keeps the
wrapper, which only passes calls on once nothing follows them.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from gobrrr.observe.live.loops.step_calls import Anchor, TopCalls, site_of_caller


class CompiledFunction:
    """A compiled function; `then` is called before each call while it is followed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.then: Callable[[], None] | None = None

    def before(self) -> None:
        """A call is about to run."""
        if self.then is not None:
            self.then()


class Compiling:
    """Calls `began()` when the program compiles something, and makes calls of compiled functions through `tops`."""

    def __init__(self, tops: TopCalls, began: Callable[[], None]) -> None:
        self._tops, self._began = tops, began
        self._plain: Any = None
        self._ours: Any = None
        self._pid = 0

    def open(self) -> None:
        """Replace `torch.compile`."""
        self._pid = os.getpid()
        original = self._plain = torch.compile

        @functools.wraps(original)
        def compile(model: Any = None, **options: Any) -> Any:
            if self._ours is None or os.getpid() != self._pid:
                return original(model, **options)
            self._began()
            if model is None:
                return lambda model: compile(model, **options)
            compiled = original(model, **options)
            is_function = callable(model) and not isinstance(model, torch.nn.Module | type)
            return self._wrapped(compiled, model) if is_function and compiled is not model else compiled

        self._ours = compile
        torch.compile = compile

    def close(self) -> None:
        """Restore it."""
        if self._ours is not None and torch.compile is self._ours:
            torch.compile = self._plain
        self._ours = None

    def _wrapped(self, compiled: Any, model: Any) -> Any:
        function, tops = CompiledFunction(getattr(model, "__name__", type(model).__name__)), self._tops

        @functools.wraps(compiled)  # copies the attributes by which the compiler knows it within another function
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return compiled(*args, **kwargs)
            if function.then is not None:
                function.then()
            elif tops.is_open:
                return tops.top(function, compiled, args, kwargs)
            return compiled(*args, **kwargs)

        return call


class FunctionCalls:
    """Calls `then()` before each call of the anchor, a compiled function, in its thread."""

    def __init__(self, anchor: Anchor, then: Callable[[], None]) -> None:
        self._anchor, self._then = anchor, then
        self._pid = os.getpid()
        anchor.module.then = self._noted

    def close(self) -> None:
        """Stop following its calls."""
        self._anchor.module.then = None

    def _noted(self) -> None:
        anchor = self._anchor
        if threading.get_ident() != anchor.thread or os.getpid() != self._pid:
            return
        if anchor.site is None or anchor.site == site_of_caller():
            self._then()
