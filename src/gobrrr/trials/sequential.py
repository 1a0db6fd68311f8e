"""How sure it is, after any number of rounds, that one arm of a trial is faster than the other: a sequential rank test.

A round has two blocks of each arm, in one of six orders that a die picks. If both arms are equal, a block's time does
not depend on which arm it is called: each of the six orders would have shown the same four times, whatever the noise,
however slow the machine becomes between two blocks. The number of the four pairs in which the first arm took longer is
then 0, 1, 2, 3 or 4 in 1, 1, 2, 1 and 1 of the six orders. That is all the test rests on.

It is a bet against "equal": a stake is multiplied, round by round, by exp(bet * (pairs - 2)) over what that is on
average, so that a stake against a true "equal" grows by nothing on average. The chance that it ever becomes
1 / `DOUBT` times as large is at most `DOUBT` (Ville's inequality): the rounds may be looked at after each of them, and
ended as soon as they say enough, without more equal arms being called different. Stakes are laid on four bets at once,
for the best one depends on the noise (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting,
2024; ranks within rounds are those of van Elteren's test, 1960).

The same of times to which a saving was added gives the savings that are not refuted: an interval that holds the true
one with a probability of 1 - `DOUBT`, after every round at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DOUBT = 0.01
"""The chance that arms that are equal are ever called different."""

BETS = (0.5, 1.0, 2.0, 4.0)
"""Small bets win in noise, where rounds go both ways; the large one where every round goes the same way."""

ORDERS = (
    (False, False, True, True), (False, True, False, True), (False, True, True, False),
    (True, False, False, True), (True, False, True, False), (True, True, False, False),
)  # fmt: skip
"""The orders of a round; True is the second arm."""

WAYS = (1, 1, 2, 1, 1)
"""In how many of the orders 0, 1, ... pairs say that the first arm took longer."""


def _growth(bet: float) -> tuple[float, ...]:
    """The logarithm of what a stake is multiplied by, for each number of pairs."""
    average = sum(ways * math.exp(bet * (pairs - 2)) for pairs, ways in enumerate(WAYS)) / len(ORDERS)
    return tuple(bet * (pairs - 2) - math.log(average) for pairs in range(len(WAYS)))


GROWTH = tuple(_growth(bet) for bet in BETS)
ENOUGH = 2 / DOUBT
"""Each direction is bet on by itself, with half of the doubt."""

LEAST_ROUNDS = next(n for n in range(1, 100) if sum(math.exp(n * one[-1]) for one in GROWTH) / len(GROWTH) >= ENOUGH)
"""Of fewer rounds none can say anything: 4."""


@dataclass(frozen=True)
class Round:
    """The times of a round's blocks, ns of one unit of work: two of the first arm, two of the second."""

    firsts: tuple[float, float]
    others: tuple[float, float]

    @property
    def saved(self) -> float:
        """By how much the second arm took less."""
        return (sum(self.firsts) - sum(self.others)) / 2


def interval(rounds: Sequence[Round]) -> tuple[float, float]:
    """The least and the most that the second arm may save; infinite while nothing can be said."""
    apart = [[first - other for first in it.firsts for other in it.others] for it in rounds]
    return _least(apart), -_least([[-one for one in it] for it in apart])


def _least(apart: Sequence[Sequence[float]]) -> float:
    """The largest of the differences that the saving is known to be no less than."""
    steps = sorted({one for it in apart for one in it})
    low, high = -1, len(steps) - 1  # a smaller saving is refuted whenever a larger one is
    while low < high:
        middle = (low + high + 1) // 2
        refuted = _stake(apart, steps[middle]) >= ENOUGH
        low, high = (middle, high) if refuted else (low, middle - 1)
    return steps[low] if low >= 0 else -math.inf


def _stake(apart: Sequence[Sequence[float]], saving: float) -> float:
    """What the stake against a saving of less than so much has become."""
    pairs = [sum(one >= saving for one in it) for it in apart]
    most = 700.0  # beyond it a float ends
    return sum(math.exp(min(most, sum(growth[pair] for pair in pairs))) for growth in GROWTH) / len(GROWTH)
