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

    def add(self, one: Candidate, seconds: float, compile_s: float | None) -> None:
        """A trial of a way: its seconds, and those of them that went into compiling."""
        compiling = min(compile_s or 0.0, seconds) if one.compiles else 0.0
        self._plain.append(seconds - compiling)
        self._takes(one, compiling)

    def ended(self, one: Candidate, seconds: float) -> None:
        """A trial of a way was ended after so long, by the budget: it takes longer than that."""
        self._takes(one, seconds)

    def _takes(self, one: Candidate, compiling: float) -> None:
        if one.compiles:
            self._compiled[one.way] = max(compiling, self._compiled.get(one.way, 0.0))
            self._slow |= {one.way} if one.slow else set()

    def of(self, one: Candidate, step_s: float) -> float:
        """A trial of a way, of a step of so many seconds; a way to compile is compiled as long as it was, else as the
        longest one yet."""
        return self._trial(step_s, compiles=one.compiles) + self._compiling(one)

    def joined(self, ways: Sequence[Candidate], step_s: float) -> float:
        """A trial of ways that were tried one by one, against the step as it was, of so many seconds."""
        return self._trial(step_s, compiles=any(one.compiles for one in ways)) + self._again(ways)

    def look(self, ways: Sequence[Candidate]) -> float:
        """A diagnosis of the step with ways that were tried: the longest so far; it was of no shorter step."""
        return max(self._looks, default=0.0) + self._again(ways)

    def _trial(self, step_s: float, *, compiles: bool) -> float:
        mean = sum(self._plain) / len(self._plain) if self._plain else 0.0
        return max(mean, pace.trial_s(step_s, compiles=compiles))

    def _again(self, ways: Sequence[Candidate]) -> float:
        return self.CACHED * sum(self._compiling(one) for one in ways)

    def _compiling(self, one: Candidate) -> float:
        if one.way in self._compiled or not one.compiles:
            return self._compiled.get(one.way, 0.0)
        # all in the time of a way that compiles what it is given as it is
        each = [took / (self.SLOWER if way in self._slow else 1.0) for way, took in self._compiled.items()]
        if not each:
            return self.SLOW_S if one.slow else 0.0
        return max(each) * (self.SLOWER if one.slow else 1.0)
