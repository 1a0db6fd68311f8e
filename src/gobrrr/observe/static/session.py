"""One recording from begin to end: the modes on, the step run, everything put back."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from gobrrr.errors import InputError, UsageError
from gobrrr.model.recording import RecordedCall, Recording
from gobrrr.model.workload import Workload
from gobrrr.observe.installed import is_users
from gobrrr.observe.static import settings
from gobrrr.observe.static.doubles import Doubles
from gobrrr.observe.static.memory import Memory
from gobrrr.observe.static.patches import patched
from gobrrr.observe.static.recorder import NeedsData, Recorder
from gobrrr.observe.static.restore import Keeper, kept
from gobrrr.observe.static.sides import Sides
from gobrrr.observe.static.sites import Sites
from gobrrr.observe.static.values import Values
from gobrrr.observe.static.virtual import Virtual
from gobrrr.observe.targets import TARGET, find_callable, step_of

_REFUSED = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)


COMPILED = "compiled modules are taken as they are written: what the compiler saves is not in the prediction"


class Session:
    """The modes of one recording."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.sites = Sites()
        self.sides = Sides(self.memory, native=False)
        self.keeper = Keeper()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        values = Values()
        self.doubles = Doubles(self.fake, self.memory, values, self.keeper.tensor)
        self.recorder = Recorder(self.sides, self.sites, values, self.memory, self.doubles)
        self.virtual = Virtual(self.recorder, "cpu", self.keeper.tensor)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Everything that runs in the block runs on fake tensors."""
        with ExitStack() as stack:
            stack.enter_context(settings.kept())
            stack.enter_context(kept(self.keeper, self.recorder))
            stack.enter_context(patched(self.virtual))
            stack.enter_context(self.sites.following())
            stack.enter_context(self.fake)
            stack.enter_context(self.recorder)
            stack.enter_context(self.virtual)
            yield

    def record(self, step: Callable[..., Any], inputs: Sequence[Any], keywords: dict[str, Any]) -> None:
        """Record one call of the step; if that makes a Workload, forget the making and record its step."""
        made = self._run(step, inputs, keywords)
        if isinstance(made, Workload):
            self.recorder.forget()
            step, given = _step_of(made)
            made = self._run(step, self.doubles.within(tuple(given)), {})
        if isinstance(made, torch.nn.Module | Generator) or inspect.isroutine(made):
            raise UsageError(
                f"the step returned a {type(made).__name__} and ran nothing of it; "
                "what makes a step returns gobrrr.Workload(step=...)"
            )

    def _run(self, step: Callable[..., Any], inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
        self.memory.begin()
        self.recorder.recording = True
        try:
            return step(*inputs, **keywords)
        finally:
            self.recorder.recording = False

    def guessed(self) -> str:
        """What was assumed before an error, in words that follow it: the error may come of that."""
        last = next(reversed(self.recorder.assumptions.values()), None)
        if last is None:
            return ""
        place = (last.source or "an unknown line").rpartition("/")[2]
        return f" (after {last.what} at {place} was taken as {last.value})"

    def finished(self, target: str, seconds: float) -> Recording:
        """The recording."""
        calls = self.recorder.finished()
        on_cpu = not any(call.place == "device" for call in calls)
        level = self.memory.everything if on_cpu else self.memory.device
        return Recording(
            target=target,
            calls=tuple(map(_on_device, calls)) if on_cpu else calls,
            sites=tuple(self.sites.found),
            peak_bytes=level.peak,
            start_bytes=level.start,
            module_calls=self.sites.module_calls,
            on_cpu=on_cpu,
            assumptions=tuple(self.recorder.assumptions.values()),
            notes=(*self.recorder.remarks.values(), *((COMPILED,) if self.sites.compiled else ())),
            versions={"torch": str(torch.__version__)},
            seconds=seconds,
        )


def _on_device(call: RecordedCall) -> RecordedCall:
    """A call of a program that runs on a CPU, as it would run on a GPU: all but an optimizer's step counters there."""
    import msgspec

    return call if call.counter else msgspec.structs.replace(call, place="device")


def record_step(step: Callable[..., Any], inputs: Sequence[Any], keywords: dict[str, Any], target: str) -> Recording:
    """Record `step(*inputs, **keywords)`, or the step of the Workload that it returns."""
    session = Session()
    begin = time.perf_counter()
    with _told(session, target), session.open():
        session.record(step, session.doubles.within(tuple(inputs)), session.doubles.within(keywords))
    return session.finished(target, time.perf_counter() - begin)


def record_named(target: str) -> Recording:
    """Record the step behind "file.py:callable" or "package.module:callable"."""
    if TARGET.fullmatch(target) is None:
        raise UsageError(f"{target}: a step is named file.py:callable or package.module:callable")
    session = Session()
    begin = time.perf_counter()
    with _told(session, target), session.open():
        session.record(find_callable(target), (), {})
    return session.finished(target, time.perf_counter() - begin)


def record_workload(workload: Workload) -> Recording:
    """Record the step of a Workload that is there already; it is as it was afterwards."""
    step, inputs = _step_of(workload)
    return record_step(step, inputs, {}, workload.name or getattr(step, "__qualname__", "step"))


def _step_of(workload: Workload) -> tuple[Callable[..., Any], Sequence[Any]]:
    if workload.loader is not None:
        raise UsageError(
            "a loader's batches are real data, which a prediction has not got: give the Workload one batch as inputs"
        )
    return step_of(workload, _forward)


def _forward(model: Any, *inputs: Any) -> Any:
    with torch.no_grad():
        return model(*inputs)


@contextmanager
def _told(session: Session, target: str) -> Iterator[None]:
    """Errors of the step in one line that names the user's line."""
    try:
        yield
    except (UsageError, InputError):
        raise
    except NeedsData as error:
        raise UsageError(str(error)) from error
    except _REFUSED as error:
        raise UsageError(_needs_data(error)) from error
    except SystemExit as error:
        raise UsageError(f"{target or 'the step'} left the program (SystemExit: {error}){_user_line(error)}") from error
    except Exception as error:
        where = _user_line(error)
        text = str(error).strip().splitlines()
        what = f"{type(error).__name__}{_said(text)}{session.guessed()}"
        raise UsageError(f"{target or 'the step'} failed on fake tensors{where}: {what}") from error


MOST_SAID = 160
_OPERATOR = re.compile(r"HigherOrderOperator (\w+)")
_ADDRESS = re.compile(r"<[\w. ]+ object at 0x[0-9a-f]+>")


def _said(lines: list[str]) -> str:
    """ ": " and the first line of an error's text, without addresses and not too long; "" for one without text."""
    operator = _OPERATOR.search(lines[0]) if lines else None
    if operator is not None:
        return f": {operator[1]} is an operator on functions, which fake tensors can't run here"
    text = _ADDRESS.sub("an object", lines[0]) if lines else ""
    return f": {text[:MOST_SAID]}{'...' if len(text) > MOST_SAID else ''}" if text else ""


def _needs_data(error: Exception) -> str:
    func = getattr(error, "func", None)
    name = str(func) if func is not None else type(error).__name__
    return f"{name}{_user_line(error)} needs real data, which a prediction has not got; take it out of the step"


def _user_line(error: BaseException) -> str:
    """ " at file.py:12", the innermost line outside installed packages."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_users(file):
            found = f" at {file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
