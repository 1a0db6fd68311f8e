"""What is left of the budget, what the next call needs of it, and what is reserved for later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gobrrr.trials.candidate import Candidate
from gobrrr.trials.costs import Costs
from gobrrr.trials.looking import enough
from gobrrr.trials.pace import GRACE_SHARE, TRIAL_OVERHEAD


class Started(Protocol):
    """What runs the steps. Starting it took `start_s` seconds; if it is down, the next call starts it again."""

    @property
    def start_s(self) -> float:
        """Seconds that starting it took."""

    @property
    def down(self) -> bool:
        """Whether the next call has to start it."""


class Spending:
    """The seconds of one run, counted from the time of its request."""

    def __init__(self, budget_s: float, bench: Started, clock: Callable[[], float], begun: float) -> None:
        self.budget_s = budget_s
        self.costs = Costs()
        self._bench, self._clock, self._begun = bench, clock, begun

    @property
    def spent(self) -> float:
        """The seconds spent so far."""
        return self._clock() - self._begun

    @property
    def left(self) -> float:
        """The seconds left; below 0 where more was spent than the budget."""
        return self.budget_s - self.spent

    def trial(self, candidate: Candidate, step_s: float) -> float:
        """The seconds that a trial of a way needs, for a step of `step_s`."""
        return self._starting() + self.costs.of(candidate, step_s)

    def look(self, kept: Sequence[Candidate]) -> float:
        """The seconds that a diagnosis with the kept ways needs."""
        return self._starting() + self.costs.look(kept)

    def joined(self, kept: Sequence[Candidate], step_s: float) -> float:
        """The seconds that the trial of all kept ways at once needs; 0 for a single way, whose own trial was that."""
        return self._starting() + self.costs.joined(kept, step_s) if len(kept) > 1 else 0.0

    def after(self, kept: Sequence[Candidate], step_s: float) -> float:
        """The seconds reserved during the trial of a way: for the next diagnosis, and for the trial of all at once."""
        return self.costs.look(kept) + (self.costs.joined(kept, step_s) if len(kept) > 1 else 0.0)

    def instead(self, others: Sequence[Candidate], step_s: float) -> float:
        """The seconds reserved while nothing is decided and a way compiles for an unknown time: for ending and
        restarting the process, and for the shortest trial of another way."""
        if not others:
            return 0.0
        return GRACE_SHARE * self.budget_s + self._bench.start_s + min(self.costs.of(other, step_s) for other in others)

    def enough(self, seconds: float, once_s: float) -> float:
        """The budget with room for `seconds` after what was spent so far, which may take longer next time. `once_s`:
        the time of a measurement that is still due on this machine."""
        return enough(TRIAL_OVERHEAD * self.spent + seconds, self.budget_s, once_s)

    def _starting(self) -> float:
        return self._bench.start_s if self._bench.down else 0.0
