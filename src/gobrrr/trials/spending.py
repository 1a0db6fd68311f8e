"""What is left of the budget, what the next call needs of it, and what is kept back for what comes after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gobrrr.trials.candidate import Candidate
from gobrrr.trials.costs import Costs
from gobrrr.trials.looking import enough
from gobrrr.trials.pace import GRACE, ROOM


class Started(Protocol):
    """What runs the steps: starting it took `start_s`, and has to be done again before the next call if it is down."""

    @property
    def start_s(self) -> float:
        """Seconds."""

    @property
    def down(self) -> bool:
        """Whether it has to be started."""


class Spending:
    """Seconds of one run, counted from the moment at which it was asked for."""

    def __init__(self, budget_s: float, bench: Started, clock: Callable[[], float], begun: float) -> None:
        self.budget_s = budget_s
        self.costs = Costs()
        self._bench, self._clock, self._begun = bench, clock, begun

    @property
    def spent(self) -> float:
        """What was spent so far."""
        return self._clock() - self._begun

    @property
    def left(self) -> float:
        """What is left; below 0 where it was overdrawn."""
        return self.budget_s - self.spent

    def trial(self, candidate: Candidate, step_s: float) -> float:
        """What a trial of a way needs, of a step of so many seconds."""
        return self._starting() + self.costs.of(candidate, step_s)

    def look(self, kept: Sequence[Candidate]) -> float:
        """What a diagnosis with ways needs."""
        return self._starting() + self.costs.look(kept)

    def joined(self, kept: Sequence[Candidate], step_s: float) -> float:
        """What the trial of several ways at once needs; 0 of one, whose own trial was that."""
        return self._starting() + self.costs.joined(kept, step_s) if len(kept) > 1 else 0.0

    def after(self, kept: Sequence[Candidate], step_s: float) -> float:
        """What is kept back while a way is tried with which these would be kept: for all at once, and the diagnosis."""
        return self.costs.look(kept) + (self.costs.joined(kept, step_s) if len(kept) > 1 else 0.0)

    def instead(self, others: Sequence[Candidate], step_s: float) -> float:
        """What is kept back while nothing is decided yet and a way compiles for an unknown time: if that has to be
        ended, its process is, and the shortest trial of another has room."""
        if not others:
            return 0.0
        return GRACE * self.budget_s + self._bench.start_s + min(self.costs.of(other, step_s) for other in others)

    def enough(self, seconds: float, once_s: float) -> float:
        """The budget in which as many seconds have room after what was spent by now, which may take longer another
        time. `once_s`: what is still to be measured once on this machine."""
        return enough(ROOM * self.spent + seconds, self.budget_s, once_s)

    def _starting(self) -> float:
        return self._bench.start_s if self._bench.down else 0.0
