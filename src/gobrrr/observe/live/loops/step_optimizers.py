"""Steps of an optimizer, seen through torch's global hook: the step loop of a training program."""

from __future__ import annotations

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
MOST_INNER = 16
"""Steps of the followed optimizer within one of another that are still taken for a part of that step."""


class OptimizerSteps:
    """Calls `stepped(moved)` after each step of the optimizer that defines the loop; `moved` when it is a new one.

    The first optimizer that steps is followed. It gives way to another that steps SILENT times while it is silent (it
    was replaced), at once when it is gone, and to one that steps once in every n > 1 steps of it (the critic of a GAN
    steps more often than the generator: the whole turn is the step).
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

    def _last(self, *_: Any) -> None:
        """Ours is to be the last of the hooks, which torch walks: a step's end may add and remove some."""
        if not torch.compiler.is_compiling() and self._handle is not None:
            hooks = self._handle.hooks_dict_ref()
            if hooks is not None and next(reversed(hooks), None) != self._handle.id:
                hooks.move_to_end(self._handle.id)

    def _hook(self, optimizer: Any, _: Any, __: Any) -> None:
        if torch.compiler.is_compiling():  # the compiler reads this hook: it must do nothing there
            return
        if os.getpid() != self._pid or self._handle is None:
            return
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        if self._thread == here:
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
        self._steps = 0
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
