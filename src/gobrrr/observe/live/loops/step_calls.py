"""Calls of modules that no other module made: the loop of an inference or a decode program.

While the loop is searched for, `nn.Module.__call__` is ours at the top alone: on the way into a module it is put back,
so that the calls within, and a compiler that reads them, find torch as it is. (Global forward hooks would be seen by
every module, and the compiler would specialize on them.) Once the module is known, only its own calls are followed,
through the attribute that `Module.compile()` uses; it is neither copied nor pickled with the module.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from gobrrr.observe.installed import Owner, owner
from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.loops import step_intent
from gobrrr.observe.live.loops.repetition import once, shortest

CALLS = 10
"""Calls in a loop's worth of repetition, without gradients, that are taken for an inference loop."""
CALLS_WITH_GRADIENTS = 64
"""The same where a backward pass has run: an optimizer's step may follow when gradients have been accumulated. So where
the program is written to train, and takes backward passes for parameters that no optimizer has."""
CALLS_BEFORE_TRAINING = 300
"""The same where an optimizer has the module's parameters, or the program is written to train: this may be an
evaluation before that."""
TAIL = 3 * CALLS_BEFORE_TRAINING

_SKIPPED = (Owner.TORCH, Owner.GOBRRR)
Site = tuple[CodeType, int]


def site_of_caller(depth: int = 1) -> Site | None:
    """(code, line) of the innermost frame that is neither torch's nor ours."""
    frame = next(users_frames(sys._getframe(depth)), None)
    return (frame.f_code, frame.f_lineno) if frame is not None else None


def users_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame and those that called it, without torch's and ours; the innermost first."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen") and owner(file) not in _SKIPPED:
            yield frame
        frame = frame.f_back


class TopCalls:
    """Calls `called(module, site)` before each call of a module that is not made within another's, of any thread."""

    def __init__(self, called: Callable[[Any, Site | None], None]) -> None:
        self._called = called
        self._plain: Any = None
        self._ours: Any = None
        self._pid = 0
        self._inside: set[int] = set()

    @property
    def is_open(self) -> bool:
        """Whether anybody listens."""
        return self._ours is not None

    @property
    def within(self) -> bool:
        """Whether a module is being called in this thread."""
        return threading.get_ident() in self._inside

    def open(self) -> None:
        """Take `nn.Module.__call__`."""
        self._pid = os.getpid()
        plain = self._plain = torch.nn.Module.__call__

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return plain(module, *args, **kwargs)
            return self.top(module, functools.partial(plain, module), args, kwargs)

        self._ours = __call__
        self._put(__call__)

    def close(self) -> None:
        """Give it back."""
        if self._ours is not None and torch.nn.Module.__call__ is self._ours:
            self._put(self._plain)
        self._ours = None

    def _put(self, method: Any) -> None:
        torch.nn.Module.__call__ = method
        # The compiler compares it with the method it found when it was imported; where they differ it reads the method
        # and specializes on it, and would compile again without us. It reads nothing where they are the same.
        compiler: Any = sys.modules.get("torch._dynamo.variables.nn_module")
        if hasattr(compiler, "unpatched_nn_module_call"):
            compiler.unpatched_nn_module_call = method

    def top(self, callee: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """`call(*args, **kwargs)`, told about where it is at the top; for a compiled function, too."""
        here = threading.get_ident()
        if os.getpid() != self._pid:
            self.close()
        taken = torch.nn.Module.__call__ is not self._ours  # by a tracer (torch.fx), or another thread is inside
        if self._ours is None or taken or here in self._inside:
            return call(*args, **kwargs)
        self._put(self._plain)
        self._inside.add(here)
        try:
            self._called(callee, site_of_caller(2))
            if not isinstance(callee, torch.nn.Module):
                callee.before()
            return call(*args, **kwargs)
        finally:
            self._inside.discard(here)
            if self._ours is not None and torch.nn.Module.__call__ is self._plain:
                self._put(self._ours)


@dataclass(frozen=True)
class Anchor:
    """The module, or compiled function, whose call begins a step; `site` where only its calls from there do."""

    module: Any
    site: Site | None
    thread: int


@dataclass
class _Thread:
    """Top-level calls of one thread: what was called from where, and whether a backward pass could follow."""

    events: list[int] = field(default_factory=list)
    graded: list[bool] = field(default_factory=list)


class CallLoop:
    """Reads the stream of top-level calls of each thread; `call` answers with the anchor when the evidence is there."""

    def __init__(self, *, patient: bool = True) -> None:
        self.calls = 0
        self.most: tuple[int, str] | None = None  # the longest loop so far: its calls, of what
        self._patient = patient
        self._keys: dict[tuple[int, Site | None], int] = {}
        self._modules: list[tuple[Any, Site | None]] = []
        self._threads: dict[int, _Thread] = {}
        self._training: bool | None = None
        self._by_hand: _ByHand | None = None

    def call(self, module: Any, site: Site | None) -> Anchor | None:
        """One more call at the top, before it runs."""
        self.calls += 1
        here = threading.get_ident()
        thread = self._threads.setdefault(here, _Thread())
        key = (id(module), site)
        event = self._keys.setdefault(key, len(self._modules))
        if event == len(self._modules):
            self._modules.append((module, site))  # keeps the module, and so its id, until the loop is found
        thread.events.append(event)
        thread.graded.append(torch.is_grad_enabled())
        del thread.events[:-TAIL], thread.graded[:-TAIL]
        return self._decided(thread, here) if len(thread.events) >= CALLS else None

    def clear(self) -> None:
        """Let go of the modules."""
        if self._by_hand is not None:
            self._by_hand.close()
        self._keys.clear()
        self._modules.clear()
        self._threads.clear()

    def _decided(self, thread: _Thread, here: int) -> Anchor | None:
        found = shortest(thread.events)
        if found is None or found.covered < CALLS:
            return None
        anchors = once(thread.events, found)
        if not anchors:
            return None
        module, site = self._modules[anchors[0]]
        self.most = max(self.most or (0, ""), (found.covered, callee_name(module)))
        with apart():  # parameters are asked for their gradients
            if self._patient and found.covered < self._wanted(thread, found.period, found.covered):
                return None
        turn = thread.events[-found.period :]
        alone = sum(self._modules[event][0] is module for event in turn) == 1
        return Anchor(module, None if alone else site, here)

    def _wanted(self, thread: _Thread, period: int, covered: int) -> int:
        """How many calls are evidence enough, given what may still come."""
        callees = [self._modules[event][0] for event in set(thread.events[-period:])]
        modules = [callee for callee in callees if isinstance(callee, torch.nn.Module)]
        parameters = [p for module in modules for p in module.parameters()]
        hidden = len(modules) < len(callees)  # a compiled function's parameters are not known
        if self._training is None:
            self._training = an_optimizer_has(None if hidden else parameters) or step_intent.training_is_written()
            if self._training and not hidden:
                self._by_hand = _ByHand(parameters)
        if self._training:
            by_hand = self._by_hand is not None and self._by_hand.seen()
            return CALLS_WITH_GRADIENTS if by_hand else CALLS_BEFORE_TRAINING
        if any(thread.graded[-covered:]) and (hidden or any(p.grad is not None for p in parameters)):
            return CALLS_WITH_GRADIENTS
        return CALLS


class _ByHand:
    """Whether a program takes backward passes for parameters that no optimizer has: it updates them itself.

    Passes are counted by a hook on one parameter, which is gone after `close()`.
    """

    def __init__(self, parameters: list[Any]) -> None:
        self._parameters = parameters
        self._passes = 0
        trained = next((parameter for parameter in parameters if parameter.requires_grad and parameter.is_leaf), None)
        self._hook = trained.register_post_accumulate_grad_hook(self._passed) if trained is not None else None

    def seen(self) -> bool:
        """Whether there were as many passes as calls make a loop."""
        return self._passes >= CALLS and not an_optimizer_has(self._parameters)

    def close(self) -> None:
        """No hook."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._parameters = []

    def _passed(self, _: Any) -> None:
        self._passes += 1


def callee_name(callee: Any) -> str:
    """A module's class; of a compiled one, the class of what was compiled; a compiled function's own name."""
    if not isinstance(callee, torch.nn.Module):
        return str(callee.name)
    inner = getattr(callee, "_orig_mod", None)
    return type(inner if inner is not None else callee).__name__


def an_optimizer_has(parameters: list[Any] | None) -> bool:
    """Whether the program holds an optimizer, stepped or not, of one of these parameters; None: of any."""
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.optim.Optimizer)]
    if parameters is None:
        return bool(found)
    wanted = {id(parameter) for parameter in parameters}
    groups = [group for one in found for group in getattr(one, "param_groups", ())]
    return any(id(one) in wanted for group in groups for one in group["params"])


def _nothing() -> None:
    return None


class ModuleCalls:
    """Calls `then()` before each call of the anchor, in its thread."""

    def __init__(self, anchor: Anchor, then: Callable[[], None]) -> None:
        self._anchor = anchor
        self._then = then
        self._pid = os.getpid()
        self._had = "_compiled_call_impl" in vars(anchor.module)
        self._plain = anchor.module._compiled_call_impl
        vars(anchor.module)["_compiled_call_impl"] = self

    def close(self) -> None:
        """The module as it was."""
        own = vars(self._anchor.module)
        if own.get("_compiled_call_impl") is self:
            if self._had:
                own["_compiled_call_impl"] = self._plain
            else:
                del own["_compiled_call_impl"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's call."""
        if not torch.compiler.is_compiling():
            self._noted()
        return (self._plain or self._anchor.module._call_impl)(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _nothing, ()  # in a copy of the module: not compiled, not followed

    def _noted(self) -> None:
        anchor = self._anchor
        if threading.get_ident() != anchor.thread or os.getpid() != self._pid:
            return
        if anchor.site is None or anchor.site == site_of_caller(3):
            self._then()
