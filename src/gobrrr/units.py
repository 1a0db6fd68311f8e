"""The only place that turns nanoseconds, bytes and FLOP into text. None is shown as "?" and never as zero."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import TypeGuard

UNKNOWN_TEXT = "?"
DIGITS = 3
"""Significant digits: more would claim an accuracy that neither a trace nor a datasheet has."""

MOST_DENOMINATOR = 50
"""A mean below 1 is shown as "2 in 3 steps" up to this many steps, as a decimal beyond. Chosen, not measured."""

TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
"""Nanoseconds in each unit, largest first."""

SI_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
"""SI prefixes: a kB is 1,000 bytes, as bandwidths are quoted."""


def duration(ns: float | None) -> str:
    """Nanoseconds as "12.3 ms", "<1 ns" below what a trace resolves; "0" only for exactly 0."""
    if not _finite(ns):
        return UNKNOWN_TEXT
    if ns == 0:
        return "0"
    if abs(ns) < 1:
        return "<1 ns" if ns > 0 else ">-1 ns"
    scale, unit = _time_unit(ns)
    return f"{_digits(ns / scale)} {unit}"


def faster(saved_ns: float | None) -> str:
    """A saved time as "39.4 ms faster", a lost one (below 0) as "39.4 ms slower"."""
    if not _finite(saved_ns):
        return UNKNOWN_TEXT
    return f"{duration(abs(saved_ns))} {'faster' if saved_ns > 0 else 'slower'}" if saved_ns else "no faster or slower"


def duration_range(low_ns: float | None, high_ns: float | None) -> str:
    """Two times in nanoseconds in a common unit: "12.1 to 15.3 ms"; a single time where both read the same."""
    if not _finite(low_ns) or not _finite(high_ns):
        low, high = duration(low_ns), duration(high_ns)
        return UNKNOWN_TEXT if low == high else f"{low} to {high}"
    largest = max(abs(low_ns), abs(high_ns))
    if largest < 1:
        low, high = (duration(value).removesuffix(" ns") for value in (low_ns, high_ns))
        return duration(low_ns) if low == high else f"{low} to {high} ns"
    scale, unit = _time_unit(largest)
    places = _places(largest / scale)
    low, high = (_fixed(value / scale, places) for value in (low_ns, high_ns))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def duration_within(value_ns: float, low_ns: float, high_ns: float) -> str:
    """A time and its interval in a common unit: "23.1 ms (9.2 to 31.4)"; the time alone where all read the same."""
    interval = duration_range(low_ns, high_ns)
    if not _finite(low_ns) or not _finite(high_ns) or interval == duration(value_ns):
        return interval
    scale, unit = _time_unit(max(abs(low_ns), abs(high_ns), 1.0))
    middle = _fixed(value_ns / scale, _places(max(abs(low_ns), abs(high_ns)) / scale))
    return f"{middle} {unit} ({interval.removesuffix(f' {unit}')})"


def bytes_(n: float | None) -> str:
    """Bytes as "1.07 GB" (decimal prefixes); whole bytes below 1,000."""
    return _scaled(n, "B")


def flop(n: float | None) -> str:
    """Floating-point operations (a fused multiply-add is 2) as "4.61 TFLOP"."""
    return _scaled(n, "FLOP")


def rate(per_s: float | None, of: str = "B") -> str:
    """A rate per second: `rate(3.35e12)` is "3.35 TB/s", `rate(989.4e12, "FLOP")` is "989 TFLOP/s"."""
    text = _scaled(per_s, of)
    return text if text == UNKNOWN_TEXT else f"{text}/s"


def percent(share: float | None) -> str:
    """A fraction as "42 %", with a decimal below 10 and above 99. Only 0 reads "0 %" and only 1 reads "100 %"."""
    if not _finite(share):
        return UNKNOWN_TEXT
    if share < 0:
        return f"-{percent(-share)}"
    value = 100 * share
    if value in (0, 100):
        return f"{value:.0f} %"
    if value < 0.05:
        return "<0.1 %"
    if 99.95 <= value < 100:
        return ">99.9 %"
    decimals = 1 if round(value, 1) < 10 or 99 < value < 100 else 0
    return f"{value:.{decimals}f} %"


def count(n: float | None) -> str:
    """A count as "1,848"; a mean that is not whole keeps three significant digits ("12.5")."""
    if not _finite(n):
        return UNKNOWN_TEXT
    return f"{int(n):,}" if float(n).is_integer() else _digits(n)


def things(n: float | None, noun: str) -> str:
    """A count with its noun, which is given in the singular: "1 chain", "28 chains", "2 copies of weights"."""
    return f"{count(n)} {noun if n == 1 else many(noun)}"


def many(phrase: str) -> str:
    """The plural of a noun phrase: of the noun before "of" where there is one."""
    noun, of, what = phrase.partition(" of ")
    if re.search("[^aeiou]y$", noun):
        return f"{noun[:-1]}ies{of}{what}"
    return f"{noun}{'es' if noun.endswith(('s', 'x', 'ch')) else 's'}{of}{what}"


def a_step(n: float | None, noun: str = "") -> str:
    """A count per step: "3 waits a step", "12 a step"; a mean below 1 as a fraction: "2 in 3 steps"."""

    def named(n: float | None) -> str:
        return things(n, noun) if noun else count(n)

    if _finite(n) and 0 < n < 1:
        part = Fraction(n).limit_denominator(MOST_DENOMINATOR)
        if math.isclose(part, n, rel_tol=1e-6):
            return f"{named(part.numerator)} in {things(part.denominator, 'step')}"
    return f"{named(n)} a step"


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _scaled(n: float | None, unit: str) -> str:
    if not _finite(n):
        return UNKNOWN_TEXT
    if n == 0:
        return f"0 {unit}"
    rounded = abs(_rounded(n))
    scale, prefix = next(((scale, prefix) for scale, prefix in SI_PREFIXES if rounded >= scale), (1.0, ""))
    whole = not prefix and float(n).is_integer()
    return f"{int(n) if whole else _digits(n / scale)} {prefix}{unit}"


def _time_unit(ns: float) -> tuple[float, str]:
    """The largest unit in which the rounded value is at least 1, so that 999.9 us reads 1.00 ms."""
    rounded = abs(_rounded(ns))
    return next(((scale, unit) for scale, unit in TIME_UNITS if rounded >= scale), TIME_UNITS[-1])


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _places(value: float) -> int:
    """Decimals that show `value` with three significant digits; none from 100 upwards."""
    rounded = abs(_rounded(value))
    return max(0, DIGITS - 1 - math.floor(math.log10(rounded)))


def _digits(value: float) -> str:
    return f"{_rounded(value):,.{_places(value)}f}"


def _fixed(value: float, places: int) -> str:
    """`value` with a given number of decimals; only 0 reads "0"."""
    smallest = 10.0**-places
    if value == 0:
        return "0"
    if abs(value) < smallest / 2:
        return f"<{smallest:.{places}f}" if value > 0 else f">-{smallest:.{places}f}"
    return f"{value:,.{places}f}"
