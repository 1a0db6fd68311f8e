"""Finds the step loop of an unchanged program while it runs.

Where an optimizer steps, its steps define the loop. Else outermost calls of a module do, once there were enough of them
that they are no evaluation before training; where a turn of the program's own loop holds several such calls, the turn
is the step. Else, in programs without modules, a line that runs again and again. What the finder puts into the program
is removed when the watcher is done, and by `close()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, Protocol

import torch

from gobrrr import units
from gobrrr.observe.live.loops.script import Stopped, in_main_thread
from gobrrr.observe.live.loops.step_calls import (
    INFERENCE_CALLS,
    CallLoop,
    ModuleCalls,
    Site,
    TopCalls,
    an_optimizer_has,
    callee_name,
)
from gobrrr.observe.live.loops.step_compiled import Compiling, FunctionCalls
from gobrrr.observe.live.loops.step_lines import LineCount, counting
from gobrrr.observe.live.loops.step_optimizers import OptimizerSteps
from gobrrr.observe.live.loops.step_sites import SEARCH_S, SiteSearch
from gobrrr.observe.live.loops.step_turns import BytecodeLoop as ProgramLoop
from gobrrr.observe.live.loops.step_turns import TurnCounter

MOST_STOPS = 3
"""How often `Stopped` is raised in a script that catches it; chosen."""
MODULE_CALLS = 4
"""Outermost calls of modules after which a program counts as one with modules; chosen."""
NO_LOOP_FOUND = (
    f"no step loop was found: no optimizer step, no module called more than {INFERENCE_CALLS} times in a loop, "
    "no repetition"
)
"""What the user reads where no loop was found."""


class StepListener(Protocol):
    """What measures the steps: moved on from warm-up to its windows by each boundary, until it is done."""

    steps_from: str

    @property
    def done(self) -> bool:
        """Whether everything is measured."""

    def open(self) -> None:
        """Before the program begins."""

    def boundary(self) -> None:
        """One step has ended and the next begins."""

    def restart(self) -> None:
        """Back to warm-up: what was measured so far was not the loop."""

    def close(self) -> None:
        """Restore everything."""


How = Literal["optimizer", "module", "line"]


@dataclass(frozen=True, kw_only=True)
class FoundLoop:
    """The loop that was found. `how` is None where none was. `boundaries`: how many the watcher was called at.

    `before`: calls that were made before it was found. `text` names it ("steps of AdamW", "calls of GPT", "train.py:12
    in main"). `remarks`: what was tried and dropped. `failure`: the error that ended the measuring; the program went
    on.
    """

    how: How | None
    text: str
    boundaries: int
    before: int = 0
    remarks: tuple[str, ...] = ()
    failure: str | None = None


class Finder:
    """`open()` before the program begins, `close()` when it has ended. `stop_after`: ends it when all is measured.

    `steps`: look only for this kind of loop, and take the first of it. `search_s`: seconds that a repetition must have
    lasted.
    """

    def __init__(
        self, watcher: StepListener, *, stop_after: bool = False, steps: How | None = None, search_s: float = SEARCH_S
    ) -> None:
        self.watcher = watcher
        self.stop_after = stop_after
        self._steps = steps
        self._how: How | None = None
        self._text = NO_LOOP_FOUND
        self._boundaries = 0
        self._remarks: list[str] = []
        self._failure: str | None = None
        self._stops = 0
        self._busy = False
        self._pid = 0
        self._optimizers = OptimizerSteps(self._optimizer_stepped)
        self._tops = TopCalls(self._called)
        self._calls = CallLoop(patient=steps is None)
        self._search = SiteSearch(self._line_found, self._not_searched, search_s, self._within_a_step)
        self._unsearched: str | None = None
        self._module: ModuleCalls | FunctionCalls | None = None
        self._turns = TurnCounter(self._boundary, self._turn_found, self._turn_is_call)
        self._before = 0
        self._line: LineCount | None = None
        self._compiling = Compiling(self._tops, self._compiles)

    def open(self) -> None:
        """Begin the search. Call it from the thread that will run the program."""
        self._pid = os.getpid()
        self.watcher.open()
        if self._steps in (None, "optimizer"):
            self._optimizers.open()
        if self._steps in (None, "module"):
            self._tops.open()
        if self._steps in (None, "module", "line"):
            self._compiling.open()
        if self._steps in (None, "line"):
            self._search.open()

    def close(self) -> None:
        """Restore everything."""
        if os.getpid() != self._pid:
            return
        self._remove()
        self._calls.clear()
        self.watcher.close()

    def found(self) -> FoundLoop:
        """What defines the loop, as far as is known by now."""
        reasons = (self._few_calls(), self._unsearched) if self._how is None else ()
        return FoundLoop(
            how=self._how,
            text=self._text,
            boundaries=self._boundaries,
            before=self._before,
            remarks=(*self._remarks, *(reason for reason in reasons if reason is not None)),
            failure=self._failure,
        )

    def _few_calls(self) -> str | None:
        """The note on a loop of calls that may have been an evaluation before training."""
        if self._calls.most is None:
            return None
        count, name = self._calls.most
        return (
            f"the loop of {units.things(count, 'call')} of {name} was not taken: the program holds an optimizer, or "
            "code that trains"
        )

    # -- what was seen

    def _optimizer_stepped(self, moved: bool) -> None:
        if self._how != "optimizer":
            self._leave_calls()
            self._search.close()
            self._drop_module()
            self._drop_line()
        if moved:
            self._now("optimizer", f"steps of {self._optimizers.name}")
        self._boundary()

    def _called(self, module: Any, site: Site | None) -> None:
        anchor = self._calls.call(module, site)
        if self._calls.calls == MODULE_CALLS:
            self._search.close()
        if anchor is not None and self._how is None:
            self._leave_calls()
            self._search.close()
            self._before = self._calls.most[0] - 1 if self._calls.most is not None else 0
            self._now("module", f"calls of {callee_name(anchor.module)}")
            follow = ModuleCalls if isinstance(anchor.module, torch.nn.Module) else FunctionCalls
            self._module = follow(anchor, self._turns.called)  # this also follows the call that is about to run
            if self._steps is None:
                self._guarded(self._turns.open)

    def _turn_found(self, loop: ProgramLoop) -> None:
        self._now("line", f"turns of the loop at {_where(loop.code, loop.line)}")

    def _turn_is_call(self, loop: ProgramLoop) -> None:
        self._name(
            f"turns of the loop at {_where(loop.code, loop.line)}, one {self._text.replace('calls', 'call', 1)} in each"
        )

    def _within_a_step(self) -> bool:
        """Whether a module is being called in a program that has an optimizer: a loop in it is a part of the step."""
        return self._tops.within and an_optimizer_has(None)

    def _not_searched(self, why: str) -> None:
        self._unsearched = why

    def _line_found(self, site: Site) -> None:
        code, line = site
        if self._how is not None:
            return
        self._line = counting(code, line, self._boundary)
        if not self._line.open():
            self._not_searched("a debugger, profiler or coverage tool is in the way of counting a line")
            return
        self._leave_calls()
        self._now("line", f"runs of the line {_where(code, line)}")

    def _now(self, how: How, text: str) -> None:
        """This is the loop. Where another was taken for it so far, the watcher begins again."""
        if self._how is not None:
            self._remarks.append(f"the loop was taken for {self._text} until {text} began")
            self._guarded(self.watcher.restart)
            self._boundaries = 0
        self._how = how
        self._name(text)

    def _name(self, text: str) -> None:
        self._text = self.watcher.steps_from = text

    # -- what is told

    def _boundary(self) -> None:
        if self._busy or os.getpid() != self._pid or self._failure is not None:
            return
        if not self.watcher.done:
            self._boundaries += 1
            self._guarded(self.watcher.boundary)
        if self.watcher.done and not self.stop_after:
            self._remove()
        elif self.watcher.done:
            self._stop()

    def _guarded(self, act: Callable[[], None]) -> None:
        """An error in the measuring ends the measuring, not the program."""
        self._busy = True
        try:
            act()
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
            self._remove()
            self.watcher.close()
        finally:
            self._busy = False

    def _stop(self) -> None:
        self._stops += 1
        if self._stops >= MOST_STOPS or not in_main_thread():
            self._remove()
        if in_main_thread():
            raise Stopped("all that gobrrr wanted to see was measured")
        self._remarks.append("the loop is not in the main thread: the program was left to run to its end")

    # -- what is in the program

    def _compiles(self) -> None:
        """End the search: a function that is compiled under a mode would be recompiled without it."""
        self._unsearched = "not searched for repetition: the program compiles functions"
        self._search.close()

    def _leave_calls(self) -> None:
        self._tops.close()
        self._calls.clear()
        self._compiling.close()

    def _drop_module(self) -> None:
        self._turns.close()
        if self._module is not None:
            self._module.close()
            self._module = None

    def _drop_line(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _remove(self) -> None:
        self._optimizers.close()
        self._leave_calls()
        self._search.close()
        self._drop_module()
        self._drop_line()


def _where(code: CodeType, line: int) -> str:
    return f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}"
