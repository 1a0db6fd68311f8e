"""Periods of sequences, against brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gobrrr.observe.live.loops.repetition import LEAST_PERIODS, Repetition, matches, once, outermost, shortest

small = st.lists(st.integers(0, 2), max_size=40)


def covered(sequence: list[int], period: int) -> int:
    """How many events at the end repeat with this period, by comparing them one by one."""
    same = 0
    while same + period < len(sequence) and sequence[-1 - same] == sequence[-1 - same - period]:
        same += 1
    return same + period


def by_hand(sequence: list[int]) -> list[int]:
    return [p for p in range(1, len(sequence) // LEAST_PERIODS + 1) if covered(sequence, p) >= LEAST_PERIODS * p]


@given(small)
def test_matches(sequence: list[int]) -> None:
    found = matches(sequence)
    assert all(found[p] + p == covered(sequence, p) for p in range(1, len(sequence)))


@given(small)
def test_shortest(sequence: list[int]) -> None:
    periods = by_hand(sequence)
    expected = Repetition(periods[0], covered(sequence, periods[0])) if periods else None
    assert shortest(sequence) == expected


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(3, 6), st.integers(0, 5), small)
def test_a_loop_after_anything_is_found(turn: list[int], times: int, more: int, before: list[int]) -> None:
    sequence = [*[one + 10 for one in before], *(turn * times), *turn[: more % len(turn)]]
    found = outermost(sequence)
    assert found is not None
    assert len(turn) % found.period == 0 or found.period < len(turn)
    assert found.covered >= LEAST_PERIODS * found.period
    # what is claimed holds
    assert found.covered == covered(sequence, found.period)


def test_the_outer_loop_not_the_inner() -> None:
    step = [1, *[2, 3] * 6, 4]
    assert outermost(step * 4) == Repetition(len(step), 4 * len(step))
    # in the middle of the inner loop, too
    assert outermost([*step * 4, 1, 2, 3, 2, 3, 2, 3]) == Repetition(len(step), 4 * len(step) + 7)
    assert once(step * 4, Repetition(len(step), 4 * len(step))) == [1, 4]


def test_nothing_repeats() -> None:
    assert outermost(list(range(100))) is None
    assert shortest([]) is None
    assert outermost([1, 2, 1, 2]) is None
