"""The period of a sequence of events: what repeats at its end, and how far back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TIMES = 3
"""Identical periods in a row that count as a loop."""


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
    found = [0] * length
    low = high = 0
    for at in range(1, length):
        same = min(high - at, found[at - low]) if at < high else 0
        while at + same < length and reverse[same] == reverse[at + same]:
            same += 1
        found[at] = same
        if at + same > high:
            low, high = at, at + same
    return found


def shortest(sequence: Sequence[int]) -> Repetition | None:
    """The innermost loop that the sequence ends in."""
    same = matches(sequence)
    for period in range(1, len(sequence) // TIMES + 1):
        if same[period] >= (TIMES - 1) * period:
            return Repetition(period, same[period] + period)
    return None


def outermost(sequence: Sequence[int]) -> Repetition | None:
    """The outermost loop that the sequence ends in: the longest period that no shorter one explains."""
    same = matches(sequence)
    periods = [p for p in range(1, len(sequence) // TIMES + 1) if same[p] >= (TIMES - 1) * p]
    for longest in reversed(periods):
        window = TIMES * longest
        # A window that a shorter period covers is that period's, counted several times over.
        if not any(longest % p == 0 and same[p] + p >= window for p in periods if p < longest):
            return Repetition(longest, same[longest] + longest)
    return None


def once(sequence: Sequence[int], repetition: Repetition) -> list[int]:
    """Events that occur once a period, in the order in which the loop first comes to them."""
    start = len(sequence) - repetition.covered
    turn = sequence[start : start + repetition.period]
    counts: dict[int, int] = {}
    for event in turn:
        counts[event] = counts.get(event, 0) + 1
    return [event for event in turn if counts[event] == 1]
