"""Looking at a step within a budget: how many steps of it are looked at, and whether that fits at all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.trials import pace

Stages = Callable[[str, int, int], None]

WARMING, TIMING, RECORDING = "warming up", "timing without the profiler", "profiling"
"""The parts, as a watcher calls them."""

WARMUP, WINDOW, PROFILED, LOOKED = 3, 3, 2, 2
"""The fewest steps of each part of looking at a step (observe.live.watcher): they are 10."""

ONCE_SHARE = 0.25
"""Of the time that is left, what may go to what is measured once on a machine: its ceilings."""

WARMUP_SHARE = 0.1
WINDOW_S, PROFILED_S = 2.0, 1.0
"""What timing without the profiler and recording may take, beyond their fewest steps: ten steps of 200 ms, and five."""

ROUND_S = 10.0
"""A budget is named in whole tens of seconds."""


def _left(stage: str, done: int) -> int | None:
    """How many steps are still needed at the least, after so many of a part; None where a part has none to count."""
    if stage == WARMING:
        return max(WARMUP - done, 0) + WINDOW + PROFILED + LOOKED
    if stage == TIMING:
        return max(WINDOW - done, 0) + PROFILED + LOOKED
    return max(PROFILED - done, 0) + LOOKED if stage == RECORDING else None


GROWS = pace.GRACE + WARMUP_SHARE
"""Of what a budget is larger by, so much goes to waiting for a compiler and to warming up, and not to a trial."""


def enough(seconds: float, budget_s: float = math.inf, once_s: float = 0.0) -> float:
    """The budget to give where so many seconds are needed, of which `budget_s` was too short.

    `once_s`: what is measured once on the machine as soon as a budget has room for it. It was not yet, so that a larger
    budget also pays for that.
    """
    needs = _rounded(min(seconds, budget_s) + max(seconds - budget_s, 0.0) / (1.0 - GROWS))
    return _rounded(needs + once_s / (1.0 - GROWS)) if 0 < once_s <= ONCE_SHARE * needs else needs


def _rounded(seconds: float) -> float:
    return ROUND_S * math.ceil(seconds / ROUND_S)


class Looking:
    """Progress of looking at a step, which ends as soon as its steps show that the time does not suffice.

    `within_s` is what looking may take, `spent_s` what was spent before it. `first`: a trial has to fit behind it; that
    none will is said at once, in the names of the stages. `once_s`: what is to be measured once on this machine.
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
        """Pass a stage on. Raises UsageError where the steps that are still needed don't fit."""
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
        # the first step has what happens once in it: only where not even another one fits it says enough
        settled = self._steps[1:]
        step_s = median(settled or self._steps)
        budget = self._spent + self._within
        whole = self._spent + elapsed + pace.ROOM * left * step_s + pace.trial_s(step_s, compiles=True)
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
        """What the warm-up may take, where something is compiled in it or the steps become faster and faster."""
        return WARMUP_SHARE * self._within

    @contextmanager
    def once(self) -> Iterator[bool]:
        """Whether what is measured once on a machine has room; what it takes then is in `measuring_s`."""
        begin = self._clock()
        yield self._once <= ONCE_SHARE * (self._within - (begin - self._began))
        self.measuring_s += self._clock() - begin
