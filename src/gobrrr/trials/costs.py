"""What trials and diagnoses cost: the next one is only begun where the budget holds it."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.trials import pace
from gobrrr.trials.candidate import Candidate


class Costs:
    """What the calls of this search took, and what others are expected to, in seconds."""

    CACHED = 0.25
    """Of the time that compiling took, what it takes again: the compiler has it in its cache. 4 of 48 s and 3 of 25 s
    were seen; a way beneath it may have changed what is compiled."""

    SLOWER, SLOW_S = 8.0, 60.0
    """How many times as long a way compiles that times each kernel's forms, and at the least how long where nothing was
    compiled yet: 4 to 19 times and 48 to 139 s were seen."""

    def __init__(self) -> None:
        self._plain: list[float] = []
        self._compiled: dict[str, float] = {}
        self._slow: set[str] = set()
        self._looks: list[float] = []

    def looked(self, seconds: float) -> None:
        """A diagnosis took so long."""
        self._looks.append(seconds)

    def add(self, candidate: Candidate, seconds: float, compile_s: float | None) -> None:
        """A trial of a way: its seconds, and those of them that went into compiling."""
        compiling = min(compile_s or 0.0, seconds) if candidate.compiles else 0.0
        self._plain.append(seconds - compiling)
        self._takes(candidate, compiling)

    def ended(self, candidate: Candidate, seconds: float) -> None:
        """A trial of a way was ended after so long, by the budget: it takes longer than that."""
        self._takes(candidate, seconds)

    def _takes(self, candidate: Candidate, compiling: float) -> None:
        if candidate.compiles:
            self._compiled[candidate.way] = max(compiling, self._compiled.get(candidate.way, 0.0))
            self._slow |= {candidate.way} if candidate.slow else set()

    def of(self, candidate: Candidate, step_s: float) -> float:
        """A trial of a way, of a step of so many seconds; a way to compile is compiled as long as it was, else as the
        longest one yet."""
        return self._trial(step_s, compiles=candidate.compiles) + self._compiling(candidate)

    def joined(self, ways: Sequence[Candidate], step_s: float) -> float:
        """A trial of ways that were tried one by one, against the step as it was, of so many seconds."""
        return self._trial(step_s, compiles=any(way.compiles for way in ways)) + self._again(ways)

    def look(self, ways: Sequence[Candidate]) -> float:
        """A diagnosis of the step with ways that were tried: the longest so far; it was of no shorter step."""
        return max(self._looks, default=0.0) + self._again(ways)

    def _trial(self, step_s: float, *, compiles: bool) -> float:
        mean = sum(self._plain) / len(self._plain) if self._plain else 0.0
        return max(mean, pace.trial_s(step_s, compiles=compiles))

    def _again(self, ways: Sequence[Candidate]) -> float:
        return self.CACHED * sum(self._compiling(way) for way in ways)

    def _compiling(self, candidate: Candidate) -> float:
        if candidate.way in self._compiled or not candidate.compiles:
            return self._compiled.get(candidate.way, 0.0)
        # all in the time of a way that compiles what it is given as it is
        each = [took / (self.SLOWER if way in self._slow else 1.0) for way, took in self._compiled.items()]
        if not each:
            return self.SLOW_S if candidate.slow else 0.0
        return max(each) * (self.SLOWER if candidate.slow else 1.0)
