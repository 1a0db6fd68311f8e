"""The sequential rank test against itself counted out: all orders in which the rounds of equal arms can run."""

from __future__ import annotations

import itertools
import math
import random
from statistics import NormalDist

import pytest

from gobrrr.trials.sequential import DOUBT, LEAST_DECIDING_ROUNDS, ORDERS, Round, interval

ORDERS_BY_HAND = [set(pair) for pair in itertools.combinations(range(4), 2)]
"""The places of the first arm in a round."""


def rounds_of(times: list[tuple[float, ...]], places: tuple[set[int], ...]) -> list[Round]:
    """Rounds whose blocks took these times whichever arm they were of."""
    made = []
    for blocks, mine in zip(times, places, strict=True):
        first, other = ([blocks[at] for at in range(4) if (at in mine) is is_first] for is_first in (True, False))
        made.append(Round((first[0], first[1]), (other[0], other[1])))
    return made


def different(rounds: list[Round]) -> bool:
    """Whether the arms are called different after any of the rounds."""
    looks = (interval(rounds[:count]) for count in range(1, len(rounds) + 1))
    return any(least > 0 or most < 0 for least, most in looks)


def test_the_orders_are_all_there_are() -> None:
    assert len(set(ORDERS)) == 6
    assert all(sum(one) == 2 for one in ORDERS)


@pytest.mark.parametrize(("rounds", "seed"), [(4, 0), (4, 1), pytest.param(5, 2, marks=pytest.mark.slow)])
def test_of_all_orders_in_which_equal_arms_can_run_under_one_in_a_hundred_shows_a_difference(
    rounds: int, seed: int
) -> None:
    """Looked at after each round, whatever the times are: 1,296 orders, 7,776 of five rounds."""
    dice = random.Random(seed)
    times = [tuple(dice.lognormvariate(0, 1) + 5 * seed * number for _ in range(4)) for number in range(rounds)]
    orders = list(itertools.product(ORDERS_BY_HAND, repeat=rounds))
    called = sum(different(rounds_of(times, places)) for places in orders)
    assert 0 < called <= DOUBT * len(orders)


def test_fewer_than_four_rounds_never_say_anything_and_four_do() -> None:
    clear = Round((10.0, 10.1), (1.0, 1.1))
    assert LEAST_DECIDING_ROUNDS == 4
    assert interval([clear] * 3) == (-math.inf, math.inf)
    least, most = interval([clear] * 4)
    assert least == pytest.approx(10.0 - 1.1)
    assert most == pytest.approx(10.1 - 1.0)


def test_times_that_are_all_the_same_show_no_difference() -> None:
    assert interval([Round((7.0, 7.0), (7.0, 7.0))] * 10) == (0.0, 0.0)


def test_the_other_way_round_is_the_same_with_the_other_sign() -> None:
    dice = random.Random(1)
    rounds = [Round((dice.random(), dice.random()), (dice.random(), dice.random())) for _ in range(12)]
    least, most = interval(rounds)
    assert interval([Round(one.others, one.firsts) for one in rounds]) == pytest.approx((-most, -least))


def test_the_saving_is_within_its_interval_after_every_round_of_99_in_100() -> None:
    """A saving of 0.3 under normal noise: an interval that leaves it out once, in 16 rounds, is wrong."""
    dice, noise, wrong = random.Random(3), NormalDist(), 0
    for _ in range(200):
        rounds = []
        for _ in range(16):
            a, b, c, d = (noise.inv_cdf(dice.random()) for _ in range(4))
            rounds.append(Round((a, b), (c - 0.3, d - 0.3)))
            least, most = interval(rounds)
            if not least <= 0.3 <= most:
                wrong += 1
                break
    assert wrong <= 7  # of 2 that are expected at the most: 8 come about by chance once in 1,000


@pytest.mark.parametrize(("saving", "rounds"), [(0.10, 5), (0.05, 8), (0.03, 20)])
def test_a_saving_over_the_noise_is_shown_in_few_rounds_of_nine_in_ten(saving: float, rounds: int) -> None:
    """Power: blocks scatter by 2 % of the step, as on a quiet machine."""
    dice, shown = random.Random(4), 0
    for _ in range(100):
        seen = []
        for _ in range(rounds):
            a, b, c, d = (1 + dice.gauss(0, 0.02) for _ in range(4))
            seen.append(Round((a, b), (c - saving, d - saving)))
        shown += any(interval(seen[:count])[0] > 0 for count in range(LEAST_DECIDING_ROUNDS, rounds + 1))
    assert shown >= 90
