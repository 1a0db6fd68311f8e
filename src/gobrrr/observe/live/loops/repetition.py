"""The period of a sequence of events: what repeats at its end, and over how many events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_PERIODS = 3
"""Identical periods in a row that count as a loop; chosen."""


@dataclass(frozen=True)
class Repetition:
    """The last `covered` events repeat every `period` events; `covered` is at least TIMES periods."""

    period: int
    covered: int


def matches(sequence: Sequence[int]) -> list[int]:
    """For each shift p, over how many events, back from the end, the sequence equals itself shifted by p.

    The Z-function of the reversed sequence, in time linear in its length.
    """
    reverse = sequence[::-1]
    length = len(reverse)
    lengths = [0] * length
    low = high = 0
    for at in range(1, length):
        same = min(high - at, lengths[at - low]) if at < high else 0
        while at + same < length and reverse[same] == reverse[at + same]:
            same += 1
        lengths[at] = same
        if at + same > high:
            low, high = at, at + same
    return lengths


def shortest(sequence: Sequence[int]) -> Repetition | None:
    """The innermost loop at the end of the sequence: the shortest period."""
    same = matches(sequence)
    for period in range(1, len(sequence) // LEAST_PERIODS + 1):
        if same[period] >= (LEAST_PERIODS - 1) * period:
            return Repetition(period, same[period] + period)
    return None


def outermost(sequence: Sequence[int]) -> Repetition | None:
    """The outermost loop at the end of the sequence: the longest period that is no multiple of a shorter one."""
    same = matches(sequence)
    periods = [p for p in range(1, len(sequence) // LEAST_PERIODS + 1) if same[p] >= (LEAST_PERIODS - 1) * p]
    for longest in reversed(periods):
        window = LEAST_PERIODS * longest
        # Where a shorter period covers the window too, the longer one is only a multiple of it.
        if not any(longest % p == 0 and same[p] + p >= window for p in periods if p < longest):
            return Repetition(longest, same[longest] + longest)
    return None


def once(sequence: Sequence[int], repetition: Repetition) -> list[int]:
    """Events that occur once a period, in the order in which the loop first reaches them."""
    start = len(sequence) - repetition.covered
    turn = sequence[start : start + repetition.period]
    counts = Counter(turn)
    return [event for event in turn if counts[event] == 1]
