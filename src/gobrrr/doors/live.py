"""A step, a loop or a script that is run here -> Diagnosis. Needs torch; `observe.live` does the measuring."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import update_wrapper
from importlib.util import find_spec
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any
from weakref import finalize

import msgspec

from gobrrr.analysis.pricing.dispatched import counted_live
from gobrrr.doors import changes
from gobrrr.errors import UsageError
from gobrrr.guarded import GuardedParts
from gobrrr.hardware import cache
from gobrrr.hardware.measure.device import cpu_name
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.profile import Profile
from gobrrr.model.workload import Workload
from gobrrr.observe.live import make_watcher, need_torch

if TYPE_CHECKING:
    from gobrrr.observe.live.options import WatchOptions
    from gobrrr.observe.live.watcher import Watcher

Stages = Callable[[str, int, int], None]
MOST_SAID = 200
"""Characters of a user's error message that are shown; chosen."""

CALIBRATION_LIMIT_S = 30.0
"""Time limit for measuring this CPU's ceilings, before a first diagnosis or again when it is quiet; chosen."""


def diagnose(
    target: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    on: str | None = None,
    scale: bool = False,
    panel: bool = False,
    stages: Stages | None = None,
) -> Diagnosis:
    """Run a step until it was measured enough, and diagnose it. `target` is a callable, a Workload or a name."""
    profile = profile_of(target, args, kwargs, scale=scale, stages=stages)
    return diagnose_profile(profile, on=on, panel=panel, stages=stages)


def profile_of(
    target: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    scale: bool = False,
    put_back: bool = True,
    stages: Stages | None = None,
    options: WatchOptions | None = None,
) -> Profile:
    """Run a step until it was measured enough, by `options`. `target` is a callable, a Workload or a name.

    `put_back`: state that the step changes is restored, after an exception too; the notes name what is not. A step in
    a file is loaded for this call alone, so only the random states are restored.
    """
    need_torch()
    from gobrrr.observe.live.pull import loaded_as_before, pull, workload_of
    from gobrrr.observe.live.state.kept import StatePreserver
    from gobrrr.observe.targets import find_callable

    if isinstance(target, str) and (args or kwargs):
        raise UsageError(f"{target}: a named step takes no arguments; give it a Workload's inputs")
    keeps = put_back and not (isinstance(target, str) and target.rpartition(":")[0].endswith(".py"))
    watcher = make_watcher(options, progress=stages, steps_from="the step was called as a whole")
    with loaded_as_before() if isinstance(target, str) else nullcontext(), StatePreserver(stages) as kept:
        step = find_callable(target) if isinstance(target, str) else target
        if keeps:
            kept.keep(workload_of(step, args, kwargs))

        def ready(workload: Workload | None) -> None:
            if scale:
                _scalable(workload)
            if keeps and workload is not None and step not in (workload, workload.model):  # the call made it
                kept.keep(workload)
                watcher.restart()  # the copy's memory is not the step's

        pulled = pull(watcher, step, args, kwargs, ready)
        called = pulled.workload.name if pulled.workload is not None else ""
        profile = watcher.profile(target if isinstance(target, str) else called or name_of(target), cpu_name())
        if scale:
            profile = _scaled(profile, pulled.workload, stages)
    return replace(profile, notes=(*kept.notes, *profile.notes))


def name_of(target: Any) -> str:
    """The name of a target in the answer."""
    if isinstance(target, str):
        return target
    if isinstance(target, Workload):
        return target.name or getattr(target.step or target.model, "__qualname__", type(target.model).__name__)
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)


def diagnose_profile(
    profile: Profile, *, on: str | None = None, panel: bool = False, stages: Stages | None = None
) -> Diagnosis:
    """Diagnose what a watcher recorded.

    If the device is this CPU, its ceilings are measured first: all, if they never were, or those that were measured
    while the machine was busy.
    """
    return changes.diagnose(ready(profile, on, stages, again=True), on=on, panel=panel, stages=stages)


def ready(profile: Profile, on: str | None, stages: Stages | None, *, again: bool = False) -> Profile:
    """Measure this CPU's ceilings if the profile needs them; if that fails, a note says so.

    `again`: also repeat measurements that are only lower bounds, if the machine is quiet now.
    """
    if on is not None or not computes_on_host(profile):
        return profile

    def measure() -> None:
        if not _measure_once(stages) and again:
            _measure_again(stages)

    parts = GuardedParts()
    parts.make("the ceilings of this CPU", measure, None)
    return _noted(profile, parts)


def computes_on_host(profile: Profile) -> bool:
    """Whether a step that was run here used only this CPU."""
    return all(rank.device.on_host for rank in profile.ranks)


def is_measured() -> bool:
    """Whether this CPU's ceilings are known."""
    return cache.look_up(cpu_name()).machine is not None


def _measure_once(stages: Stages | None) -> bool:
    """Measure this CPU's ceilings. A CPU has no datasheet: without a measurement nothing has a floor."""
    if is_measured():
        return False
    from gobrrr.hardware.measure import measure

    if not _writable():
        return False  # it would be measured again each time; the answer says that there are no floors
    from gobrrr.observe.live.apart import apart

    with suppress(UsageError), apart():  # the program may have a dispatch mode active
        cache.save(measure("cpu", limit_s=CALIBRATION_LIMIT_S, progress=stages))
    return True


def _measure_again(stages: Stages | None) -> None:
    """Repeat the measurements that are only lower bounds because the machine was busy, if it is quiet now."""
    from gobrrr.hardware.measure import measure_again
    from gobrrr.observe.live.apart import apart

    if _writable():
        with suppress(UsageError), apart():
            measure_again("cpu", limit_s=CALIBRATION_LIMIT_S, progress=stages)


def _writable() -> bool:
    """Whether a measurement can be stored."""
    folder = cache.folder()
    return os.access(next(parent for parent in (folder, *folder.parents) if parent.exists()), os.W_OK)


def _scalable(workload: Workload | None) -> None:
    """Raise UsageError, before measuring, for a step whose batch can't be doubled."""
    from gobrrr.observe.live.ops.scaling import rebatchable

    if workload is None:
        raise UsageError(
            "scaling the batch needs to know the inputs: let the target return a gobrrr.Workload with inputs"
        )
    reason = rebatchable(workload)
    if reason:
        raise UsageError(f"the batch can't be multiplied: {reason}")


def _scaled(profile: Profile, workload: Workload | None, stages: Stages | None) -> Profile:
    """The profile with the scaling test of its step."""
    from gobrrr.observe.live.ops.scaling import scale_workload

    assert workload is not None  # `_scalable` has seen to it
    rank = profile.ranks[0]
    assert rank.live is not None
    parts = GuardedParts()
    scaling = parts.make("scaling", lambda: scale_workload(workload, stages, count=counted_live), None)
    live = msgspec.structs.replace(rank.live, scaling=scaling)
    return _noted(replace(profile, ranks=(replace(rank, live=live), *profile.ranks[1:])), parts)


def _noted(profile: Profile, parts: GuardedParts) -> Profile:
    """The profile, with a note for each of the parts that failed."""
    return replace(profile, notes=(*profile.notes, *(f"{part} {said}" for part, said in parts.failed.items())))


def users_error(target: str, error: BaseException) -> str | None:
    """One line about an error in the user's code; None if it was raised in gobrrr's."""
    from gobrrr.observe.live.pull import user_line

    place = user_line(error)
    if not place:
        return None
    lines = str(error).strip().splitlines()
    message = f": {lines[0][:MOST_SAID]}" if lines else ""
    return f"{target} failed{place}: {type(error).__name__}{message}"


def has_torch() -> bool:
    """Whether torch is installed; it is not imported."""
    return find_spec("torch") is not None


def diagnose_demo(stages: Stages | None = None) -> Diagnosis:
    """Run and diagnose a small step: the last part of `gobrrr demo`, where torch is installed."""
    need_torch()
    from gobrrr.lab.example import workload

    return diagnose(workload(), (), {}, stages=stages)


class WatchedLoop:
    """A watched loop: iterate over it, or call `boundary()` between steps; read `diagnosis` when it is `done`."""

    def __init__(
        self, watcher: Watcher, items: Iterable[Any] | None, on: str | None, then: Callable[[Diagnosis], object] | None
    ) -> None:
        self._watcher, self._items, self._on, self._then = watcher, items, on, then
        watcher.may_end = True
        self._diagnosis: Diagnosis | None = None
        self._open = False
        self._why_not = ""
        self._begun = self._failed = False

    def __enter__(self) -> WatchedLoop:
        self.begin()
        self._open = True
        return self

    def begin(self, *, displace: bool = True) -> None:
        """Begin to watch; if that fails, the loop runs on unwatched and reading `diagnosis` says why."""
        self._why_not, self._begun = "", True
        try:
            self._watcher.open(displace=displace)
        except UsageError as error:
            self._why_not = str(error)

    def __call__(self, step: Callable[..., Any]) -> WatchedStep:
        """As a decorator with options."""
        self._watcher.steps_from = f"each call of {name_of(step)}"
        return WatchedStep(step, self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._open = False
        self._watcher.close()

    def __iter__(self) -> Iterator[Any]:
        if self._items is None:
            raise UsageError(
                "there is nothing to iterate over: use gobrrr.watch(loader), or call boundary() between steps"
            )
        if not self._open:
            raise UsageError("open it first: with gobrrr.watch(loader) as steps: for batch in steps: ...")
        yield from self._watched(iter(self._items))

    def _watched(self, items: Iterator[Any]) -> Iterator[Any]:
        # a step begins when its batch is asked for: waiting for data is part of it
        for item in items:
            yield item
            if not self.done:
                self.boundary()

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def boundary(self) -> None:
        """Call between steps. An error in the measuring ends the measuring, not the loop."""
        if not self._begun:
            raise UsageError("open it first: with gobrrr.watch() as steps: ... steps.boundary()")
        if self.done:
            return
        try:
            self._watcher.boundary()
        except Exception as error:
            self._why_not, self._failed = f"the measuring failed: {type(error).__name__}: {error}", True
            self._watcher.close()
        if self._watcher.done and self._then is not None:
            self._tell(self._then)

    def _tell(self, then: Callable[[Diagnosis], object]) -> None:
        """Call the user's function, whose errors pass through; an error of the diagnosis is a warning."""
        try:
            diagnosis = self.diagnosis
        except Exception as error:
            warnings.warn(f"gobrrr has no diagnosis: {error}", RuntimeWarning, stacklevel=3)
            return
        then(diagnosis)

    @property
    def watched(self) -> bool:
        """Whether the loop is being watched now."""
        return self._watcher.opened

    @property
    def done(self) -> bool:
        """Whether the measuring has ended, because enough steps ran or because it failed."""
        return self._watcher.done or bool(self._why_not)

    @property
    def over(self) -> bool:
        """Whether the measuring has ended for good and can't begin again."""
        return self._watcher.done or self._failed

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block, a step, no other watch may begin; between steps this watch gives way to another."""
        self._watcher.gives_way = False
        try:
            yield
        finally:
            self._watcher.gives_way = True

    def close(self) -> None:
        """Stop watching and restore the settings."""
        self._watcher.close()

    @property
    def diagnosis(self) -> Diagnosis:
        """The answer. Raises UsageError if too few steps have run."""
        if self._why_not:
            raise UsageError(f"the watched loop: {self._why_not}")
        if self._diagnosis is None:
            self._diagnosis = diagnose_profile(self._watcher.profile("the watched loop", cpu_name()), on=self._on)
        return self._diagnosis


class WatchedStep:
    """A function or a method that runs one step, watched call by call until it was measured enough.

    Nested calls, and calls on another thread meanwhile, are not steps. After an exception the watching begins again.
    """

    def __init__(self, step: Callable[..., Any], steps: WatchedLoop) -> None:
        if iscoroutinefunction(step) or isgeneratorfunction(step) or isasyncgenfunction(step):
            raise UsageError(f"{name_of(step)} is asynchronous or a generator: calling it does not run a step")
        update_wrapper(self, step)
        self._step, self._steps = step, steps
        self._within = False
        finalize(self, steps.close)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step; its exceptions pass through."""
        if self._within or not self._watched():
            return self._step(*args, **kwargs)
        self._within = True
        try:
            with self._steps.held():
                result = self._step(*args, **kwargs)
        except BaseException:
            self._steps.close()
            raise
        finally:
            self._within = False
        self._steps.boundary()
        return result

    def _watched(self) -> bool:
        if not self._steps.watched and not self._steps.over:
            self._steps.begin(displace=False)
        return self._steps.watched

    @property
    def diagnosis(self) -> Diagnosis:
        """The answer. Raises UsageError if too few steps have run."""
        return self._steps.diagnosis


def watch(
    loop: Any, *, on: str | None, then: Callable[[Diagnosis], object] | None, options: dict[str, Any]
) -> WatchedLoop | WatchedStep:
    """`gobrrr.watch`: Steps for an iterable or nothing, a WatchedStep for a function that runs one step."""
    need_torch()
    from gobrrr.observe.live.options import WatchOptions

    try:
        chosen = WatchOptions(**options)
    except TypeError as error:
        raise UsageError(f"watch: {str(error).partition('()')[2].strip() or error}") from None
    if callable(loop) and (
        not hasattr(loop, "__iter__") or hasattr(loop, "forward")
    ):  # a Sequential is a module, not a loop
        watcher = make_watcher(chosen, steps_from=f"each call of {name_of(loop)}")
        return WatchedStep(loop, WatchedLoop(watcher, None, on, then))
    if isinstance(loop, str | bytes) or not (loop is None or hasattr(loop, "__iter__") or hasattr(loop, "__getitem__")):
        raise UsageError(f"watch takes something to iterate over or the function of a step, not {type(loop).__name__}")
    watcher = make_watcher(chosen, steps_from="each turn of the watched loop")
    return WatchedLoop(watcher, loop, on, then)
