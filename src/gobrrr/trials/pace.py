"""How many steps a trial takes, and so how long it takes at the least: few of a slow step. No torch here."""

from __future__ import annotations

import math

import msgspec

from gobrrr.trials.sequential import LEAST_ROUNDS

UNDECIDED = "not decided in the time"
"""How a trial begins to say that the budget, and not the noise, is why it has no verdict."""

SLOW_S = 0.5
"""From here on a step is slow: no more of them are run than a verdict takes."""

ROOM = 1.25
"""What a trial takes, in its steps alone: their state is put back and the arms are entered beside. On a CPU 1.02 to
1.2 were seen of steps of a second."""

BLOCKS = 4
"""Blocks of a round, two of each arm."""

NUMERICS_RUNS = 7
"""Runs in which the numbers are compared, at the most, each of some steps."""

FEW_RUNS, FEW_STEPS = 4, 2
"""The same where there is little time: the step as it is three times, once of them with other random numbers, and the
treated one."""

GRACE = 0.05
"""Beyond the time that a call was given it is waited for so much of the budget before its process is ended."""


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial may take. `seconds`: warm-up, comparing and timing, beside what is compiled. `within_s`: all of it.

    `step_s`: what the step took when it was diagnosed, None where that is not known. `patient`: no trial was decided
    yet: this one's rounds go on until it is, as long as `within_s` allows.
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
        """Steps before the state is copied: an optimizer makes its state in the first one."""
        return 1 if self.slow else 2

    def warm(self, *, compiles: bool) -> int:
        """The fewest steps in which an arm settles; what is compiled settles once nothing more is."""
        return (3 if compiles else 2) if self.slow else (6 if compiles else 4)

    @property
    def alike(self) -> int:
        """How many steps must agree at the end of them."""
        return 2 if self.slow else 3


def idle(step_s: float) -> int:
    """Steps of a block that are not timed: what entering an arm leaves behind is nothing beside a slow step."""
    return 0 if step_s >= SLOW_S else 1


def timed_s(step_s: float) -> float:
    """Seconds of the fewest rounds that can say anything, of one step a block."""
    return LEAST_ROUNDS * BLOCKS * (1 + idle(step_s)) * step_s


def decided_s(first_s: float, second_s: float) -> float:
    """Seconds of comparing the numbers in few runs and of the fewest rounds; each arm's step takes so many."""
    compared = FEW_STEPS * ((FEW_RUNS - 1) * first_s + second_s)
    return compared + (timed_s(first_s) + timed_s(second_s)) / 2


def trial_steps(step_s: float, *, compiles: bool = False) -> int:
    """The fewest steps of a trial that decides."""
    allowed = Allowed(seconds=0.0, step_s=step_s)
    warm = allowed.warm(compiles=False) + allowed.warm(compiles=compiles)
    return allowed.plain + warm + FEW_RUNS * FEW_STEPS + LEAST_ROUNDS * BLOCKS * (1 + idle(step_s))


def trial_s(step_s: float, *, compiles: bool = False) -> float:
    """Seconds of the shortest trial that decides, beside what is compiled."""
    return ROOM * trial_steps(step_s, compiles=compiles) * step_s
