"""Work that is done again, found by looking at two steps (gobrrr.model.recording.RepeatedWork).

The first look records the step's operations with their places, the second only their numbers (values.py). An operation
whose number was there before, in the same look or in the other one, computes what was computed already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from gobrrr.guarded import GuardedParts
from gobrrr.model.recording import RecordedCall, RepeatedWork, Site
from gobrrr.observe.live.again.functions import Functions
from gobrrr.observe.live.again.leaves import Leaves
from gobrrr.observe.live.again.prefixes import Prefixes
from gobrrr.observe.live.again.regions import Invocation, ObservedStep, again
from gobrrr.observe.live.again.values import ValueNumbers, writes
from gobrrr.observe.live.apart import apart
from gobrrr.observe.static.sites import Around, Sites

REPEATED_WORK = "work that is done again"
"""What a note says is missing where this fails."""


class Repeats:
    """Its methods are called by the hooks of each look; `found` gives the result."""

    def __init__(self) -> None:
        self._parts = GuardedParts()
        self._leaves, self._prefixes = Leaves(), Prefixes()
        self._functions = Functions()
        self._looks: list[ObservedStep] = []
        self._open: list[tuple[int, int]] = []  # the calls of modules that are running, with the module's id

    @property
    def failed(self) -> str:
        """What a note says where this failed; "" where it did not."""
        return next(iter(self._parts.failed.values()), "")

    def begin(self) -> None:
        """A look begins."""
        self._leaves.begin()
        self._open = []
        self._looks.append(ObservedStep(ValueNumbers(self._leaves, len(self._looks)), [], {}, set()))

    @contextmanager
    def following(self, sites: Sites, around: Around = lambda hook: hook) -> Iterator[None]:
        """The hooks of modules, within the block. `around` wraps each."""
        torch_module = torch.nn.modules.module
        hooks = (
            torch_module.register_module_forward_pre_hook(
                around(lambda module, args: self._enter(module, args, sites))
            ),
            torch_module.register_module_forward_hook(around(self._leave), always_call=True),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any, at: int) -> None:
        """An operation of the step, after it ran; `at`: its position in the look."""
        if not self._looks or self._parts.failed:
            return
        look = self._looks[-1]
        look.within[at] = self._open[-1][0] if self._open else -1
        if len(self._looks) == 1:
            self._functions.within[at] = self._functions.now
        self._parts.make(REPEATED_WORK, lambda: look.values.see(func, args, kwargs, outputs, at), None)

    def function(self, frame: FrameType, event: str, value: Any) -> None:
        """A function of the program begins, or returns `value`. Those that a module calls are left out."""
        if self._open or len(self._looks) != 1 or self._parts.failed:
            return
        with apart():
            if event == "call":
                self._parts.make(REPEATED_WORK, lambda: self._functions.enter(frame), None)
            else:
                self._parts.make(REPEATED_WORK, lambda: self._functions.leave(frame, value), None)

    def wrote(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation of an optimizer."""
        if self._looks and not self._parts.failed and writes(func):
            self._parts.make(REPEATED_WORK, lambda: self._looks[-1].values.wrote(func, args, kwargs), None)

    def made(self) -> dict[int, int]:
        """For each storage that is still alive, the operation of the last look that wrote it last."""
        if not self._looks or self._parts.failed:
            return {}
        values = self._looks[-1].values
        alive = values.alive()
        return {key: at for at, row in values.rows.items() for key in row.storages if key in alive}

    def found(self, calls: Sequence[RecordedCall], sites: Sequence[Site]) -> tuple[RepeatedWork, ...]:
        """The repeated work, by positions in the first look's calls."""
        if not self._looks or self._parts.failed:
            return ()
        with apart():
            return self._parts.make(REPEATED_WORK, lambda: self._again(calls, sites), ())

    def _again(self, calls: Sequence[RecordedCall], sites: Sequence[Site]) -> tuple[RepeatedWork, ...]:
        plain = ObservedStep(self._looks[0].values, self._functions.calls, self._functions.within, set())
        of_modules, of_functions = self._prefixes, self._functions.prefixes
        causal = all(prefixes.again() for prefixes in (of_modules, of_functions) if prefixes.grown)
        modules, functions = (prefixes.again() if causal else {} for prefixes in (of_modules, of_functions))
        return again(self._looks, self._leaves, modules, (plain, functions), calls, sites)

    def _enter(self, module: Any, args: tuple[Any, ...], sites: Sites) -> None:
        if not self._looks or self._parts.failed:
            return
        calls = self._looks[-1].calls
        around = self._open[-1][0] if self._open else -1
        calls.append(Invocation(around, sites.line(), sites.name(module)))
        self._open.append((len(calls) - 1, id(module)))
        if around < 0 or not self._leaves.knows(module):
            with apart():
                self._parts.make(REPEATED_WORK, lambda: self._module(module, args, top=around < 0), None)

    def _module(self, module: Any, args: tuple[Any, ...], *, top: bool) -> None:
        self._leaves.module(module)
        if top:
            look = self._looks[-1]
            look.given.update(look.values.held(argument) for argument in args if isinstance(argument, torch.Tensor))

    def _leave(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        while self._open:  # after an exception in a module its children are still here
            at, module_id = self._open.pop()
            if module_id == id(module):
                break
        else:
            return
        if not self._parts.failed and self._prefixes.wants(module, args, output):
            with apart():
                first = at if len(self._looks) == 1 else -1 - at
                self._parts.make(REPEATED_WORK, lambda: self._prefixes.see(module, args, output, first), None)
