"""Estimates of what trials and diagnoses take, so that the next one only begins if the budget has room for it."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.trials import pace
from gobrrr.trials.candidate import Candidate


class Costs:
    """What the trials and diagnoses of this search took, and what the next ones are expected to take, in seconds."""

    CACHED = 0.25
    """The share of the compile time that compiling again takes, from the compiler's cache. Seen: 4 of 48 s and 3 of 25
    s; more, because a way applied below may change what is compiled."""

    SLOWER, SLOW_S = 8.0, 60.0
    """How many times as long a way compiles that times the forms of each kernel, and the least time for it where
    nothing was compiled yet. Seen: 4 to 19 times, and 48 to 139 s."""

    def __init__(self) -> None:
        self._plain: list[float] = []
        self._compiled: dict[str, float] = {}
        self._slow: set[str] = set()
        self._looks: list[float] = []

    def looked(self, seconds: float) -> None:
        """A diagnosis took so long."""
        self._looks.append(seconds)

    def add(self, candidate: Candidate, seconds: float, compile_s: float | None) -> None:
        """A trial took `seconds`, of which `compile_s` went into compiling."""
        compiling = min(compile_s or 0.0, seconds) if candidate.compiles else 0.0
        self._plain.append(seconds - compiling)
        self._takes(candidate, compiling)

    def ended(self, candidate: Candidate, seconds: float) -> None:
        """The budget ended a trial after `seconds`: it takes longer than that."""
        self._takes(candidate, seconds)

    def _takes(self, candidate: Candidate, compiling: float) -> None:
        if candidate.compiles:
            self._compiled[candidate.way] = max(compiling, self._compiled.get(candidate.way, 0.0))
            self._slow |= {candidate.way} if candidate.slow else set()

    def of(self, candidate: Candidate, step_s: float) -> float:
        """The seconds of a trial of a way, for a step of `step_s`. A way compiles as long as before; a new one as long
        as the longest so far."""
        return self._trial(step_s, compiles=candidate.compiles) + self._compiling(candidate)

    def joined(self, ways: Sequence[Candidate], step_s: float) -> float:
        """The seconds of a trial of several ways at once that were tried one by one, against the step as it was,
        `step_s`."""
        return self._trial(step_s, compiles=any(way.compiles for way in ways)) + self._again(ways)

    def look(self, ways: Sequence[Candidate]) -> float:
        """The seconds of a diagnosis of the step with ways that were tried: as long as the longest so far."""
        return max(self._looks, default=0.0) + self._again(ways)

    def _trial(self, step_s: float, *, compiles: bool) -> float:
        mean = sum(self._plain) / len(self._plain) if self._plain else 0.0
        return max(mean, pace.trial_s(step_s, compiles=compiles))

    def _again(self, ways: Sequence[Candidate]) -> float:
        return self.CACHED * sum(self._compiling(way) for way in ways)

    def _compiling(self, candidate: Candidate) -> float:
        if candidate.way in self._compiled or not candidate.compiles:
            return self._compiled.get(candidate.way, 0.0)
        # every way in the time of one that does not time the forms of kernels
        each = [took / (self.SLOWER if way in self._slow else 1.0) for way, took in self._compiled.items()]
        if not each:
            return self.SLOW_S if candidate.slow else 0.0
        return max(each) * (self.SLOWER if candidate.slow else 1.0)
