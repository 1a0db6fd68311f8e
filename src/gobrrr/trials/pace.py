"""How many steps a trial takes, and so its shortest time: few steps where they are slow. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from gobrrr.trials.sequential import LEAST_DECIDING_ROUNDS

Stages = Callable[[str, int, int], None]
"""Takes progress: the stage, how much of it is done, and how much there is."""

UNDECIDED = "not decided in the time"
"""The first words of a trial's reason where the budget, not noise, is why it has no verdict."""

SLOW_S = 0.5
"""From this time on a step is slow, and only as many are run as a verdict takes. Chosen, not measured."""

TRIAL_OVERHEAD = 1.25
"""The time of a trial over the time of its steps: it also restores state and enters arms. Seen on a CPU, for steps of a
second: 1.02 to 1.2."""

BLOCKS = 4
"""Blocks of a round, two of each arm."""

NUMERICS_RUNS = 7
"""Runs that compare the numbers, at most, each of some steps."""

FEW_RUNS, FEW_STEPS = 4, 2
"""Runs, and their steps, where time is short: three of the original step, one of them with other random numbers, and
one of the treated step."""

GRACE_SHARE = 0.05
"""The share of the budget for which gobrrr waits after a call's time is over, before it ends the process. Chosen."""


class TrialTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time for a trial. `seconds`: for warm-up, comparing and timing, without compiling. `within_s`: for
    everything.

    `step_s`: the step's time as diagnosed; None where that is not known. `patient`: no trial was decided yet, so this
    one runs rounds until it is, as long as `within_s` allows.
    """

    seconds: float
    within_s: float = math.inf
    step_s: float | None = None
    patient: bool = False

    @property
    def slow(self) -> bool:
        """Whether the step is slow."""
        return (self.step_s or 0.0) >= SLOW_S

    @property
    def plain(self) -> int:
        """Steps before the state is copied, because an optimizer creates its state in the first step."""
        return 1 if self.slow else 2

    def warm(self, *, compiles: bool) -> int:
        """The fewest steps of an arm's warm-up; a compiled arm also has to stop compiling."""
        return (3 if compiles else 2) if self.slow else (6 if compiles else 4)

    @property
    def alike(self) -> int:
        """How many steps at the end of a warm-up must agree."""
        return 2 if self.slow else 3


def idle(step_s: float) -> int:
    """Steps of a block that are not timed; none where the step is slow, beside which entering an arm costs nothing."""
    return 0 if step_s >= SLOW_S else 1


def timed_s(step_s: float) -> float:
    """Seconds of the fewest rounds that can decide, with one step per block."""
    return LEAST_DECIDING_ROUNDS * BLOCKS * (1 + idle(step_s)) * step_s


def decided_s(first_s: float, second_s: float) -> float:
    """Seconds to compare the numbers in few runs and to run the fewest rounds, by the step time of each arm."""
    compared = FEW_STEPS * ((FEW_RUNS - 1) * first_s + second_s)
    return compared + (timed_s(first_s) + timed_s(second_s)) / 2


def trial_steps(step_s: float, *, compiles: bool = False) -> int:
    """The fewest steps of a trial that can decide."""
    allowed = TrialTime(seconds=0.0, step_s=step_s)
    warm = allowed.warm(compiles=False) + allowed.warm(compiles=compiles)
    return allowed.plain + warm + FEW_RUNS * FEW_STEPS + LEAST_DECIDING_ROUNDS * BLOCKS * (1 + idle(step_s))


def trial_s(step_s: float, *, compiles: bool = False) -> float:
    """Seconds of the shortest trial that can decide, without compiling."""
    return TRIAL_OVERHEAD * trial_steps(step_s, compiles=compiles) * step_s
