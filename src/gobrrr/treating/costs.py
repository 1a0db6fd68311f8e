"""What a trial costs: the next one is only begun where the budget holds it."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.treating.candidates import Candidate


class Costs:
    """What trials of this search took, and what others are expected to."""

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

    def add(self, one: Candidate, seconds: float, compile_s: float | None) -> None:
        """A trial of a way: its seconds, and those of them that went into compiling."""
        compiling = min(compile_s or 0.0, seconds) if one.compiles else 0.0
        self._plain.append(seconds - compiling)
        if one.compiles:
            self._compiled[one.way] = compiling
            self._slow |= {one.way} if one.slow else set()

    def of(self, one: Candidate) -> float:
        """Seconds of a trial of a way; a way to compile is compiled as long as it was, else as the longest one yet."""
        if one.way in self._compiled or not one.compiles:
            return self._mean() + self._compiled.get(one.way, 0.0)
        # all in the time of a way that compiles what it is given as it is
        each = [took / (self.SLOWER if way in self._slow else 1.0) for way, took in self._compiled.items()]
        if not each:
            return self._mean() + (self.SLOW_S if one.slow else 0.0)
        return self._mean() + max(each) * (self.SLOWER if one.slow else 1.0)

    def joined(self, ways: Sequence[Candidate]) -> float:
        """Seconds of a trial of ways that were tried one by one."""
        again = sum(self._compiled.get(one.way, self.of(one) - self._mean()) for one in ways if one.compiles)
        return self._mean() + self.CACHED * again

    def _mean(self) -> float:
        return sum(self._plain) / len(self._plain) if self._plain else 0.0
