"""Calls of modules that no other module made: the loop of an inference or a decode program.

During the search `nn.Module.__call__` is replaced for outermost calls only: on the way into a module it is restored, so
that inner calls, and a compiler that reads them, find torch unchanged. (All modules would see global forward hooks, and
the compiler would specialize on them.) Once the module is known, only its own calls are followed, through the attribute
that `Module.compile()` uses. That attribute is neither copied nor pickled with the module.
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
from gobrrr.observe.live.watches.lines import outwards

INFERENCE_CALLS = 10
"""Repeated calls, without gradients, that are taken for an inference loop; chosen."""
CALLS_WITH_GRADIENTS = 64
"""The same where a backward pass has run, since an optimizer's step may follow accumulated gradients, and where the
program has code that trains and takes backward passes for parameters that no optimizer has. Chosen."""
CALLS_BEFORE_TRAINING = 300
"""The same where an optimizer has the module's parameters or the program has code that trains: this may be an
evaluation before training. Chosen."""
LATEST_CALLS = 3 * CALLS_BEFORE_TRAINING
"""The latest calls, in which a repetition is searched; chosen."""

_SKIPPED = (Owner.TORCH, Owner.GOBRRR)
"""Owners of frames that are no part of the program."""
Site = tuple[CodeType, int]


def site_of_caller(depth: int = 1) -> Site | None:
    """(code, line) of the innermost frame of the program."""
    frame = next(users_frames(sys._getframe(depth)), None)
    return (frame.f_code, frame.f_lineno) if frame is not None else None


def users_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the program among this one and those that called it, the innermost first."""
    for caller in outwards(frame):
        file = caller.f_code.co_filename
        if not file.startswith("<frozen") and owner(file) not in _SKIPPED:
            yield caller


class TopCalls:
    """Calls `called(module, site)` before each outermost call of a module, of any thread."""

    def __init__(self, called: Callable[[Any, Site | None], None]) -> None:
        self._called = called
        self._plain: Any = None
        self._ours: Any = None
        self._pid = 0
        self._inside: set[int] = set()

    @property
    def is_open(self) -> bool:
        """Whether calls are followed."""
        return self._ours is not None

    @property
    def within(self) -> bool:
        """Whether a module is being called in this thread."""
        return threading.get_ident() in self._inside

    def open(self) -> None:
        """Replace `nn.Module.__call__`."""
        self._pid = os.getpid()
        original = self._plain = torch.nn.Module.__call__

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            return self.top(module, functools.partial(original, module), args, kwargs)

        self._ours = __call__
        self._put(__call__)

    def close(self) -> None:
        """Restore it."""
        if self._ours is not None and torch.nn.Module.__call__ is self._ours:
            self._put(self._plain)
        self._ours = None

    def _put(self, method: Any) -> None:
        torch.nn.Module.__call__ = method
        # The compiler compares it with the method that it found when it was imported. Where they differ, it reads the
        # method and specializes on it, and would recompile when we are gone. Where they are the same it reads nothing.
        compiler: Any = sys.modules.get("torch._dynamo.variables.nn_module")
        if hasattr(compiler, "unpatched_nn_module_call"):
            compiler.unpatched_nn_module_call = method

    def top(self, callee: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make the call; `called` is called first where it is an outermost one. `callee` may be a compiled function."""
        thread = threading.get_ident()
        if os.getpid() != self._pid:
            self.close()
        taken = torch.nn.Module.__call__ is not self._ours  # by a tracer (torch.fx), or another thread is inside
        if self._ours is None or taken or thread in self._inside:
            return call(*args, **kwargs)
        self._put(self._plain)
        self._inside.add(thread)
        try:
            self._called(callee, site_of_caller(2))
            if not isinstance(callee, torch.nn.Module):
                callee.before()
            return call(*args, **kwargs)
        finally:
            self._inside.discard(thread)
            if self._ours is not None and torch.nn.Module.__call__ is self._plain:
                self._put(self._ours)


@dataclass(frozen=True)
class Anchor:
    """The module or compiled function whose call begins a step. `site`: only its calls from there do; None for all."""

    module: Any
    site: Site | None
    thread: int


@dataclass
class _Thread:
    """The outermost calls of one thread: what was called from where, and whether gradients were enabled."""

    events: list[int] = field(default_factory=list)
    graded: list[bool] = field(default_factory=list)


class CallLoop:
    """Finds the loop in the outermost calls of each thread: `call` returns the anchor once there were enough calls."""

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
        """One more outermost call, before it runs."""
        self.calls += 1
        thread_id = threading.get_ident()
        thread = self._threads.setdefault(thread_id, _Thread())
        key = (id(module), site)
        event = self._keys.setdefault(key, len(self._modules))
        if event == len(self._modules):
            self._modules.append((module, site))  # keeps the module, and so its id, until the loop is found
        thread.events.append(event)
        thread.graded.append(torch.is_grad_enabled())
        del thread.events[:-LATEST_CALLS], thread.graded[:-LATEST_CALLS]
        return self._decided(thread, thread_id) if len(thread.events) >= INFERENCE_CALLS else None

    def clear(self) -> None:
        """Drop the references to modules."""
        if self._by_hand is not None:
            self._by_hand.close()
        self._keys.clear()
        self._modules.clear()
        self._threads.clear()

    def _decided(self, thread: _Thread, thread_id: int) -> Anchor | None:
        found = shortest(thread.events)
        if found is None or found.covered < INFERENCE_CALLS:
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
        return Anchor(module, None if alone else site, thread_id)

    def _wanted(self, thread: _Thread, period: int, covered: int) -> int:
        """How many calls are enough, given that training may still begin."""
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
        return INFERENCE_CALLS


class _ByHand:
    """Whether a program takes backward passes for parameters that no optimizer has, and so updates them itself.

    A hook on one parameter counts the passes, until `close()`.
    """

    def __init__(self, parameters: list[Any]) -> None:
        self._parameters = parameters
        self._passes = 0
        trained = next((parameter for parameter in parameters if parameter.requires_grad and parameter.is_leaf), None)
        self._hook = trained.register_post_accumulate_grad_hook(self._passed) if trained is not None else None

    def seen(self) -> bool:
        """Whether there were enough passes for a loop."""
        return self._passes >= INFERENCE_CALLS and not an_optimizer_has(self._parameters)

    def close(self) -> None:
        """Remove the hook."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._parameters = []

    def _passed(self, _: Any) -> None:
        self._passes += 1


def callee_name(callee: Any) -> str:
    """The name of a module's class (for a compiled module, that of the original), or of a compiled function."""
    if not isinstance(callee, torch.nn.Module):
        return str(callee.name)
    inner = getattr(callee, "_orig_mod", None)
    return type(inner if inner is not None else callee).__name__


def an_optimizer_has(parameters: list[Any] | None) -> bool:
    """Whether the program holds an optimizer, stepped or not, of one of these parameters; None: of any."""
    optimizers = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.optim.Optimizer)]
    if parameters is None:
        return bool(optimizers)
    wanted = {id(parameter) for parameter in parameters}
    groups = [group for optimizer in optimizers for group in getattr(optimizer, "param_groups", ())]
    return any(id(parameter) in wanted for group in groups for parameter in group["params"])


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
        """Restore the module."""
        own = vars(self._anchor.module)
        if own.get("_compiled_call_impl") is self:
            if self._had:
                own["_compiled_call_impl"] = self._plain
            else:
                del own["_compiled_call_impl"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module as usual, after `then()`."""
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
