"""The steps of a warm-up, each of which begins on an idle device: whether they have settled, what issuing one takes."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

STEADY = 1.25
"""Steps have settled when one takes at most this many times the fastest so far, and the one before it no more."""

NS_PER_S = 1e9


@dataclass(frozen=True)
class _Mark:
    """Where a step ended and the next one begins, in seconds; what the compiler has made until then."""

    returned: float
    begins: float
    compiles: int


class WarmUp:
    """What was noted of the steps so far."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []

    def clear(self) -> None:
        """Nothing that was noted counts."""
        self._marks.clear()

    def mark(self, returned: float, begins: float, compiles: int) -> None:
        """A step returned, the device is done with it, and the next one begins."""
        self._marks.append(_Mark(returned, begins, compiles))

    def lasted(self, now: float) -> float:
        """Seconds since the first step began; 0 before."""
        return now - self._marks[0].begins if self._marks else 0.0

    def settled(self) -> bool:
        """Whether nothing is compiled any more, and the time of a step no longer falls."""
        lengths = [one for one, _ in self._steps()]
        if not lengths:
            return True
        quiet = self._marks[-1].compiles == self._marks[-2].compiles
        falling = len(lengths) > 1 and lengths[-1] * STEADY < lengths[-2]
        return quiet and not falling and lengths[-1] <= STEADY * min(lengths)

    def lengths_ns(self) -> list[float]:
        """What each step took, the device's part of it too."""
        return [NS_PER_S * length for length, _ in self._steps()]

    def issue_ns(self) -> float | None:
        """What the host took to issue a step that had settled, the median; None without a step."""
        steps = self._steps()
        if not steps:
            return None
        most = STEADY * min(length for length, _ in steps)
        return NS_PER_S * statistics.median(issued for length, issued in steps if length <= most)

    def _steps(self) -> list[tuple[float, float]]:
        """Of each step the seconds until the device was done with it, and until it returned."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return [(end.begins - begin.begins, end.returned - begin.begins) for begin, end in pairs]
