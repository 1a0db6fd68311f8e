"""Steps of an optimizer, followed through torch's global hooks: the step loop of a training program."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

SILENT_STEPS = 8
"""Steps of another optimizer, with none of the followed one between, after which the other is followed: more than the
five steps that a critic often takes for one of its generator."""
CLOSURES = 4
"""Calls of its closure within one step of an optimizer (LBFGS) from which on each call is a step: a call repeats the
forward and the backward pass, and a program may take two of them in a step. Chosen."""
MOST_INNER = 16
"""Steps of the followed optimizer between two of another that still count as parts of the other's step; chosen."""


class OptimizerSteps:
    """Calls `stepped(moved)` after each step of the optimizer that defines the loop; `moved`: it is a new one.

    The first optimizer that steps is followed. Another is followed instead when it has stepped SILENT times while the
    followed one did not (it was replaced), at once when the followed one is deleted, and when it steps once in every
    n > 1 steps of the followed one (the critic of a GAN steps more often than the generator: the whole turn is the
    step). Where an optimizer calls its closure again and again within a step, the calls are the steps. `name`: the
    optimizer, in words.
    """

    def __init__(self, stepped: Callable[[bool], None]) -> None:
        self.name = ""
        self._stepped = stepped
        self._handle: Any = None
        self._before: Any = None
        self._pid = 0
        self._thread: int | None = None
        self._followed: weakref.ref[Any] | None = None
        self._others: dict[int, _Other] = {}
        self._steps = 0
        self._silent = SILENT_STEPS
        self._called: weakref.ref[Any] | None = None  # whose closure's calls are the steps

    def open(self) -> None:
        """Put the hooks in place."""
        self._pid = os.getpid()
        self._handle = register_optimizer_step_post_hook(self._hook)
        self._before = register_optimizer_step_pre_hook(self._last)

    def close(self) -> None:
        """Take them away."""
        if self._handle is not None:
            self._handle.remove()
            self._before.remove()
            self._handle = None

    def _last(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Move our hook behind all others: torch iterates over them, and the end of a step may add or remove some."""
        if torch.compiler.is_compiling() or self._handle is None:
            return None
        hooks = self._handle.hooks_dict_ref()
        if hooks is not None and next(reversed(hooks), None) != self._handle.id:
            hooks.move_to_end(self._handle.id)
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._counted(optimizer, args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._counted(optimizer, kwargs["closure"])}
        return None

    def _counted(self, optimizer: Any, closure: Callable[..., Any]) -> Callable[..., Any]:
        """The closure of a step, with its calls counted."""
        calls = 0

        @functools.wraps(closure)
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            result = closure(*args, **kwargs)
            calls += 1
            self._closure_called(optimizer, calls)
            return result

        return counted

    def _closure_called(self, optimizer: Any, calls: int) -> None:
        followed = self._followed() if self._followed is not None else None
        if torch.compiler.is_compiling() or not self._counts() or followed not in (None, optimizer):
            return
        if self._called is not None and self._called() is optimizer:
            self._stepped(False)
        elif calls == CLOSURES:
            self._called = self._followed = weakref.ref(optimizer)
            self.name = f"{type(optimizer).__name__}, each call of its closure"
            self._stepped(True)

    def _counts(self) -> bool:
        """Whether steps of this process and thread count: those of the first step do."""
        if os.getpid() != self._pid or self._handle is None:
            return False
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        return self._thread == thread

    def _hook(self, optimizer: Any, _: Any, __: Any) -> None:
        if torch.compiler.is_compiling():  # the compiler traces this hook, which must do nothing then
            return
        called = self._called() if self._called is not None else None
        if self._counts() and called is not optimizer:
            self._step_of(optimizer)

    def _step_of(self, optimizer: Any) -> None:
        followed = self._followed() if self._followed is not None else None
        if followed is optimizer:
            self._steps += 1
            for other in self._others.values():
                other.alone = 0
            self._stepped(False)
        elif followed is None:
            self._follow(optimizer)
        else:
            other = self._others.setdefault(id(optimizer), _Other())
            inner = other.steps(self._steps)
            if inner is not None:
                # the optimizer that was followed steps this often between two steps of the new one
                self._silent = max(SILENT_STEPS, 2 * inner + 1)
            if inner is not None or other.alone >= self._silent:
                self._follow(optimizer)

    def _follow(self, optimizer: Any) -> None:
        self._followed = weakref.ref(optimizer)
        self._others.clear()
        self._steps, self._called = 0, None
        self.name = type(optimizer).__name__
        self._stepped(True)


class _Other:
    """An optimizer beside the followed one. `alone`: its steps since the last one of the followed one."""

    def __init__(self) -> None:
        self.alone = 0
        self._at: list[int] = []

    def steps(self, followed: int) -> int | None:
        """It steps, after `followed` steps of the followed one; how many of those lie between two of its own.

        None where that number is 1, changes, or is above MOST_INNER.
        """
        self.alone += 1
        self._at = [*self._at, followed][-3:]
        if len(self._at) < 3:
            return None
        first, second = self._at[1] - self._at[0], self._at[2] - self._at[1]
        return first if first == second and 1 < first <= MOST_INNER else None
