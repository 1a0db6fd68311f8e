"""The steps of a warm-up, each of which begins on an idle device: whether they are steady, and what issuing takes."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

STEADY_FACTOR = 1.25
"""Steps are steady when one takes at most this many times the fastest so far, and is not this many times faster than
the one before. Chosen."""

NS_PER_S = 1e9


@dataclass(frozen=True)
class _Mark:
    """When a step returned and when the next one begins, in seconds; how many functions were compiled by then."""

    returned: float
    begins: float
    compiles: int


class WarmUp:
    """The times of the warm-up's steps so far."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []

    def clear(self) -> None:
        """Drop all steps."""
        self._marks.clear()

    def mark(self, returned: float, begins: float, compiles: int) -> None:
        """A step returned, the device has finished it, and the next one begins."""
        self._marks.append(_Mark(returned, begins, compiles))

    def lasted(self, now: float) -> float:
        """Seconds since the first step began; 0 before."""
        return now - self._marks[0].begins if self._marks else 0.0

    def settled(self) -> bool:
        """Whether nothing is being compiled any more, and the time of a step no longer falls."""
        lengths = [length for length, _ in self._steps()]
        if not lengths:
            return True
        quiet = self._marks[-1].compiles == self._marks[-2].compiles
        falling = len(lengths) > 1 and lengths[-1] * STEADY_FACTOR < lengths[-2]
        return quiet and not falling and lengths[-1] <= STEADY_FACTOR * min(lengths)

    def lengths_ns(self) -> list[float]:
        """The time of each step, until the device had finished it."""
        return [NS_PER_S * length for length, _ in self._steps()]

    def issue_ns(self) -> float | None:
        """The host's time to issue a steady step, the median; None without a step."""
        steps = self._steps()
        if not steps:
            return None
        most = STEADY_FACTOR * min(length for length, _ in steps)
        return NS_PER_S * statistics.median(issued for length, issued in steps if length <= most)

    def _steps(self) -> list[tuple[float, float]]:
        """For each step the seconds until the device had finished it, and until it returned."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return [(end.begins - begin.begins, end.returned - begin.begins) for begin, end in pairs]
