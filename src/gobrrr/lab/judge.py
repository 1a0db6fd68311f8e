"""From measured times to knees, ratios and verdicts. Pure: no torch, no clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gobrrr.model.experiment import ArticleClaim, Judgement, Verdict
from gobrrr.model.measured import Quantity

GROWTH = 0.10
"""A time has noticeably grown when it is 10 % above the flat part: the article's own figure for a doubled batch."""
FLAT_POINTS = 3
LINEAR_EXPONENT = 0.8
"""Between two points with at least this slope in the logarithms, time grows with the work."""

HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
UNSURE: Verdict = "can't tell"


@dataclass(frozen=True)
class Knee:
    """Where a curve of times starts to grow.

    `last_flat` and `first_grown` are the neighbouring x on both sides; None where the curve is grown from the start, or
    never grows. `crossing` is where the flat time meets a line through the origin and the last point; None where the
    last points do not grow with x yet. `certain`: the quartiles of both neighbours lie on their own sides.
    """

    flat: float
    last_flat: float | None
    first_grown: float | None
    crossing: float | None
    certain: bool

    def text(self) -> str:
        """In words: "between 32 and 64 (crossing at 47)"."""
        cross = f" (crossing at {self.crossing:.3g})" if self.crossing is not None else ""
        if self.first_grown is None:
            return f"none up to {self.last_flat:g}"
        if self.last_flat is None:
            return f"below {self.first_grown:g}"
        return f"between {self.last_flat:g} and {self.first_grown:g}{cross}"


def find_knee(points: Sequence[tuple[float, Quantity]], growth: float = GROWTH) -> Knee | None:
    """The knee of times over x (ascending); None for fewer than three points.

    The flat time is the median of the first three. A point has grown when it and all after it are more than `growth`
    above that.
    """
    if len(points) < FLAT_POINTS:
        return None
    flat = statistics.median(quantity.value for _, quantity in points[:FLAT_POINTS])
    limit = flat * (1 + growth)
    start = len(points)
    while start > 0 and points[start - 1][1].value > limit:
        start -= 1
    grown = points[start] if start < len(points) else None
    still = points[start - 1] if start > 0 else None
    certain = (grown is None or grown[1].low > limit) and (still is None or still[1].high <= limit)
    return Knee(
        flat=flat,
        last_flat=still[0] if still else None,
        first_grown=grown[0] if grown else None,
        crossing=_crossing(points, flat) if grown else None,
        certain=certain,
    )


def _crossing(points: Sequence[tuple[float, Quantity]], flat: float) -> float | None:
    (x0, t0), (x1, t1) = points[-2], points[-1]
    if exponent((x0, t0.value), (x1, t1.value)) < LINEAR_EXPONENT:
        return None
    return flat / (t1.value / x1)


def exponent(first: tuple[float, float], second: tuple[float, float]) -> float:
    """The slope between two points in the logarithms: 1 where y grows as x does, 0 where it is flat."""
    (x0, y0), (x1, y1) = first, second
    if min(x0, y0, x1, y1) <= 0 or x0 == x1:
        return 0.0
    return (math.log(y1) - math.log(y0)) / (math.log(x1) - math.log(x0))


def ratio(over: Quantity, under: Quantity) -> Quantity:
    """One time over another, from the worst to the best pairing of their quartiles."""
    value, low, high = (
        _over(a, b) for a, b in ((over.value, under.value), (over.low, under.high), (over.high, under.low))
    )
    return Quantity(value=value, low=low, high=high, runs=min(over.runs, under.runs))


def _over(a: float, b: float) -> float:
    return a / b if b else math.inf


def within(measured: Quantity | None, low: float, high: float) -> Verdict:
    """Whether what was measured lies in [low, high]: its whole interval does, none of it does, or we can't tell."""
    if measured is None or math.isnan(measured.value):
        return UNSURE
    if low <= measured.low and measured.high <= high:
        return HOLDS
    return FAILS if measured.high < low or measured.low > high else UNSURE


def exactly(yes: bool | None) -> Verdict:
    """A plain yes or no; None is can't tell."""
    if yes is None:
        return UNSURE
    return HOLDS if yes else FAILS


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The weakest: one that does not hold decides, then one that can't be told."""
    found = set(verdicts)
    if FAILS in found:
        return FAILS
    return UNSURE if UNSURE in found or not found else HOLDS


def judged(claim: ArticleClaim, verdict: Verdict, here: str, rule: str) -> Judgement:
    """A claim with its verdict, the numbers here, and when it counts as holding."""
    return Judgement(claim=claim, verdict=verdict, here=here, rule=rule)


def interval(measured: Quantity, digits: int = 2) -> str:
    """A ratio with its interval: "1.98 (1.95 to 2.02)"."""
    return f"{measured.value:.{digits}f} ({measured.low:.{digits}f} to {measured.high:.{digits}f})"
