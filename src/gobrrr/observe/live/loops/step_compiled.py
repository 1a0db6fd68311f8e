"""Functions that the program compiles: a decode loop often calls a compiled function, not a module.

`torch.compile` is ours until the loop is known. What it returns for a function is wrapped, and the wrapper stays with
the program: it hands every call on when nobody asks any more.
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
    """One of them; `then` is called before each call while it is followed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.then: Callable[[], None] | None = None

    def before(self) -> None:
        """A call is about to run."""
        if self.then is not None:
            self.then()


class Compiling:
    """Tells `began()` when the program compiles something, and `tops` of the calls of compiled functions."""

    def __init__(self, tops: TopCalls, began: Callable[[], None]) -> None:
        self._tops, self._began = tops, began
        self._plain: Any = None
        self._ours: Any = None
        self._pid = 0

    def open(self) -> None:
        """Take `torch.compile`."""
        self._pid = os.getpid()
        plain = self._plain = torch.compile

        @functools.wraps(plain)
        def compile(model: Any = None, **options: Any) -> Any:
            if self._ours is None or os.getpid() != self._pid:
                return plain(model, **options)
            self._began()
            if model is None:
                return lambda model: compile(model, **options)
            made = plain(model, **options)
            plain_function = callable(model) and not isinstance(model, torch.nn.Module | type)
            return self._wrapped(made, model) if plain_function and made is not model else made

        self._ours = compile
        torch.compile = compile

    def close(self) -> None:
        """Give it back."""
        if self._ours is not None and torch.compile is self._ours:
            torch.compile = self._plain
        self._ours = None

    def _wrapped(self, made: Any, model: Any) -> Any:
        function, tops = CompiledFunction(getattr(model, "__name__", type(model).__name__)), self._tops

        @functools.wraps(made)  # with the attributes by which the compiler knows it, when it is called in another
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return made(*args, **kwargs)
            if function.then is not None:
                function.then()
            elif tops.is_open:
                return tops.top(function, made, args, kwargs)
            return made(*args, **kwargs)

        return call


class FunctionCalls:
    """Calls `then()` before each call of the anchor, a compiled function, in its thread."""

    def __init__(self, anchor: Anchor, then: Callable[[], None]) -> None:
        self._anchor, self._then = anchor, then
        self._pid = os.getpid()
        anchor.module.then = self._noted

    def close(self) -> None:
        """Nobody asks any more."""
        self._anchor.module.then = None

    def _noted(self) -> None:
        anchor = self._anchor
        if threading.get_ident() != anchor.thread or os.getpid() != self._pid:
            return
        if anchor.site is None or anchor.site == site_of_caller():
            self._then()
