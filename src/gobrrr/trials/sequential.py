"""A sequential rank test: after any number of rounds, how sure it is that one arm of a trial is faster than the other.

A round has two blocks of each arm, in one of six orders drawn at random. If both arms are equal, a block's time does
not depend on its arm's name: each of the six orders would have shown the same four times, whatever the noise, and
however slow the machine becomes between two blocks. The number of the four pairs in which the first arm took longer is
then 0, 1, 2, 3 or 4 in 1, 1, 2, 1 and 1 of the six orders. The test assumes nothing else.

It is a bet against "equal": after each round a stake is multiplied by exp(bet * (pairs - 2)), divided by that factor's
mean, so that the expected stake stays the same if the arms are equal. The chance that the stake ever grows to 1 /
`DOUBT` times its size is then at most `DOUBT` (Ville's inequality): the trial may check after every round, and stop as
soon as the result is clear, without calling equal arms different more often. The stake is split over four bets, because
the best bet depends on the noise (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting,
2024; ranks within rounds as in van Elteren's test, 1960).

The same test on times shifted by a saving refutes savings. Those that it does not refute are an interval that contains
the true saving with a probability of 1 - `DOUBT`, simultaneously after every round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DOUBT = 0.01
"""The largest chance that equal arms are ever called different. Chosen."""

BETS = (0.5, 1.0, 2.0, 4.0)
"""Small bets win in noise, where rounds disagree; large ones where all rounds agree. Chosen."""

ORDERS = (
    (False, False, True, True), (False, True, False, True), (False, True, True, False),
    (True, False, False, True), (True, False, True, False), (True, True, False, False),
)  # fmt: skip
"""The possible orders of a round; True is the second arm."""

ORDERS_BY_PAIRS = (1, 1, 2, 1, 1)
"""The number of orders in which the first arm took longer in 0, 1, ... of the four pairs, if both arms are equal."""


def _growth(bet: float) -> tuple[float, ...]:
    """The logarithm of a stake's factor, for each number of pairs."""
    average = sum(ways * math.exp(bet * (pairs - 2)) for pairs, ways in enumerate(ORDERS_BY_PAIRS)) / len(ORDERS)
    return tuple(bet * (pairs - 2) - math.log(average) for pairs in range(len(ORDERS_BY_PAIRS)))


LOG_STAKE_FACTORS = tuple(_growth(bet) for bet in BETS)
"""`_growth` of each bet."""
DECIDING_STAKE = 2 / DOUBT
"""The stake that decides: each direction has its own bet, with half of the doubt."""

LEAST_DECIDING_ROUNDS = next(
    n
    for n in range(1, 100)
    if sum(math.exp(n * growth[-1]) for growth in LOG_STAKE_FACTORS) / len(LOG_STAKE_FACTORS) >= DECIDING_STAKE
)
"""The fewest rounds that can decide: 4."""


@dataclass(frozen=True)
class Round:
    """The times of a round's blocks, in ns per unit of work: two of the first arm, two of the second."""

    firsts: tuple[float, float]
    others: tuple[float, float]

    @property
    def saved(self) -> float:
        """The mean saving of the second arm."""
        return (sum(self.firsts) - sum(self.others)) / 2


def interval(rounds: Sequence[Round]) -> tuple[float, float]:
    """The least and the largest saving of the second arm that are not refuted; infinite while rounds are too few."""
    apart = [[first - other for first in round_.firsts for other in round_.others] for round_ in rounds]
    return _least(apart), -_least([[-difference for difference in differences] for differences in apart])


def _least(apart: Sequence[Sequence[float]]) -> float:
    """The largest difference below which every saving is refuted."""
    steps = sorted({difference for differences in apart for difference in differences})
    low, high = -1, len(steps) - 1  # if a saving is refuted as too small, every smaller one is
    while low < high:
        middle = (low + high + 1) // 2
        refuted = _stake(apart, steps[middle]) >= DECIDING_STAKE
        low, high = (middle, high) if refuted else (low, middle - 1)
    return steps[low] if low >= 0 else -math.inf


def _stake(apart: Sequence[Sequence[float]], saving: float) -> float:
    """The stake against a saving of less than `saving`, after all rounds."""
    pairs = [sum(difference >= saving for difference in differences) for differences in apart]
    most = 700.0  # the exponential of more overflows a float
    return sum(math.exp(min(most, sum(growth[pair] for pair in pairs))) for growth in LOG_STAKE_FACTORS) / len(
        LOG_STAKE_FACTORS
    )
