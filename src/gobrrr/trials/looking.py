"""Diagnosing a step within a budget: how many steps are observed, and whether the budget has room for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.trials import pace
from gobrrr.trials.pace import Stages

WARMING, TIMING, RECORDING = "warming up", "timing without the profiler", "profiling"
"""The stages of a diagnosis, by the watcher's names."""

WARMUP, WINDOW, PROFILED, LOOKED = 3, 3, 2, 2
"""The fewest steps of each stage of a diagnosis (observe.live.watcher), 10 in total."""

ONCE_SHARE = 0.25
"""The share of the time left that measuring the machine's ceilings, once per machine, may take. Chosen."""

WARMUP_SHARE = 0.1
"""The share of the time that warming up may take. Chosen, not measured."""
WINDOW_S, PROFILED_S = 2.0, 1.0
"""Seconds that timing without the profiler and recording may take beyond their fewest steps: ten and five steps of 200
ms."""

ROUND_S = 10.0
"""Budgets that a message suggests are multiples of this."""


def _left(stage: str, done: int) -> int | None:
    """The fewest steps that are still needed after `done` steps of a stage; None where a stage counts no steps."""
    if stage == WARMING:
        return max(WARMUP - done, 0) + WINDOW + PROFILED + LOOKED
    if stage == TIMING:
        return max(WINDOW - done, 0) + PROFILED + LOOKED
    return max(PROFILED - done, 0) + LOOKED if stage == RECORDING else None


GROWS = pace.GRACE_SHARE + WARMUP_SHARE
"""The share of an increase of the budget that goes to waiting for a compiler and to warming up, not to a trial."""


def enough(seconds: float, budget_s: float = math.inf, once_s: float = 0.0) -> float:
    """The budget to suggest where `seconds` are needed and `budget_s` was too short.

    `once_s`: the time of a measurement that is still due on this machine: a larger budget has room for it, and pays for
    it too.
    """
    needs = _rounded(min(seconds, budget_s) + max(seconds - budget_s, 0.0) / (1.0 - GROWS))
    return _rounded(needs + once_s / (1.0 - GROWS)) if 0 < once_s <= ONCE_SHARE * needs else needs


def _rounded(seconds: float) -> float:
    return ROUND_S * math.ceil(seconds / ROUND_S)


class DiagnosisProgress:
    """Progress of a diagnosis, which ends as soon as its steps show that the time is too short.

    `within_s`: seconds for the diagnosis; `spent_s`: seconds spent before it. `first`: a trial has to follow; the names
    of the stages say so at once where the budget has no room for one. `once_s`: the time of a measurement that is still
    due on this machine.
    """

    def __init__(
        self, stages: Stages | None, within_s: float, spent_s: float, *, first: bool = False, once_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._stages, self._within, self._spent, self._first, self._clock = stages, within_s, spent_s, first, clock
        self._began = self._last = clock()
        self._steps: list[float] = []
        self._needs = ""
        self._once, self.measuring_s = once_s, 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Pass a stage on. Raises UsageError where there is no time for the steps that are still needed."""
        left = _left(stage, done)
        if left is not None:
            now = self._clock()
            if stage != WARMING or done:
                self._steps.append(now - self._last)
                self._check(left, now - self._began)
            self._last = now
        if self._stages is not None:
            self._stages(f"{stage}{self._needs}", done, total)

    def _check(self, left: int, elapsed: float) -> None:
        # the first step includes one-time work: it only counts where not even one more step fits
        settled = self._steps[1:]
        step_s = median(settled or self._steps)
        budget = self._spent + self._within
        whole = self._spent + elapsed + pace.TRIAL_OVERHEAD * left * step_s + pace.trial_s(step_s, compiles=True)
        needs = enough(whole, budget, self._once)
        if settled and self._first and whole > budget:
            self._needs = f" (a trial needs --budget {needs:g})"
        if elapsed + (left if settled else 1) * step_s <= self._within:
            return
        raise UsageError(
            f"a step takes about {units.duration(1e9 * step_s)}: diagnosing it takes {left} more of them, a trial "
            f"{pace.trial_steps(step_s, compiles=True)}, and {self._spent + elapsed:.0f} s of {budget:.0f} s were "
            f"spent: --budget {needs:g} has room for one trial"
        )

    @property
    def warmup_s(self) -> float:
        """Seconds for the warm-up, which compiling or steps that still get faster prolong."""
        return WARMUP_SHARE * self._within

    @contextmanager
    def once(self) -> Iterator[bool]:
        """Yields whether there is time for the measurement that is due once; its time goes to `measuring_s`."""
        begin = self._clock()
        yield self._once <= ONCE_SHARE * (self._within - (begin - self._began))
        self.measuring_s += self._clock() - begin
