"""Steps of an optimizer, seen through torch's global hook: the step loop of a training program."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

SILENT = 8
"""Steps of another optimizer, with none of the one that is followed between, after which the other is followed: more
than the five of a critic for each of its generator's."""
CLOSURES = 4
"""Calls of its closure within a step of an optimizer (LBFGS) from which on each of them is a step: such a step repeats
the forward and the backward pass, and a program may take two of them."""
MOST_INNER = 16
"""Steps of the followed optimizer within one of another that are still taken for a part of that step."""


class OptimizerSteps:
    """Calls `stepped(moved)` after each step of the optimizer that defines the loop; `moved` when it is a new one.

    The first optimizer that steps is followed. It gives way to another that steps SILENT times while it is silent (it
    was replaced), at once when it is gone, and to one that steps once in every n > 1 steps of it (the critic of a GAN
    steps more often than the generator: the whole turn is the step). Of one that calls its closure again and again
    within a step, the calls are the steps. `name` says whose steps they are.
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
        self._silent = SILENT
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
        """Ours is to be the last of the hooks, which torch walks: a step's end may add and remove some."""
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
        """The closure of a step; each of its calls is counted."""
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
        """Whether this is the process, and the thread, whose steps count: that of the first."""
        if os.getpid() != self._pid or self._handle is None:
            return False
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        return self._thread == here

    def _hook(self, optimizer: Any, _: Any, __: Any) -> None:
        if torch.compiler.is_compiling():  # the compiler reads this hook: it must do nothing there
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
                self._silent = max(
                    SILENT, 2 * inner + 1
                )  # the one that is left will step so often within the other's turn
            if inner is not None or other.alone >= self._silent:
                self._follow(optimizer)

    def _follow(self, optimizer: Any) -> None:
        self._followed = weakref.ref(optimizer)
        self._others.clear()
        self._steps, self._called = 0, None
        self.name = type(optimizer).__name__
        self._stepped(True)


class _Other:
    """An optimizer beside the one that is followed."""

    def __init__(self) -> None:
        self.alone = 0
        self._at: list[int] = []

    def steps(self, followed: int) -> int | None:
        """It steps after `followed` steps of the other; how many of those each of its own takes, if more than one."""
        self.alone += 1
        self._at = [*self._at, followed][-3:]
        if len(self._at) < 3:
            return None
        first, second = self._at[1] - self._at[0], self._at[2] - self._at[1]
        return first if first == second and 1 < first <= MOST_INNER else None
