"""Knees and verdicts, on curves whose knee is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.lab.judge import FAILS, HOLDS, UNSURE, all_of, exactly, exponent, find_knee, interval, ratio, within
from gobrrr.model.measured import Quantity
from tests.lab.samples import h100_sweep, q

POWERS = [float(2**power) for power in range(10)]


def test_the_h100s_knee_is_between_64_and_128() -> None:
    knee = find_knee(h100_sweep())
    assert knee is not None
    assert (knee.last_flat, knee.first_grown, knee.certain) == (64, 128, True)
    assert 80 < (knee.crossing or 0) < 92  # 0.1826 ms over 1.0904 ms / 512
    assert knee.text() == f"between 64 and 128 (crossing at {knee.crossing:.3g})"


@given(st.floats(4.0, 250.0), st.floats(1e-6, 1.0))
def test_a_roofs_knee_is_found_where_it_is(ridge: float, flat_s: float) -> None:
    """time = flat * max(1, x / ridge): the knee lies where x passes the ridge."""
    knee = find_knee([(x, q(flat_s * max(1.0, x / ridge))) for x in POWERS])
    assert knee is not None
    assert knee.last_flat is not None
    assert knee.first_grown is not None
    assert knee.last_flat <= ridge * 1.1
    assert ridge <= knee.first_grown
    assert knee.first_grown <= 2 * knee.last_flat
    assert knee.crossing == pytest.approx(ridge, rel=1e-6)


def test_a_curve_that_never_grows_and_one_that_always_does() -> None:
    flat = find_knee([(x, q(1.0)) for x in POWERS])
    assert flat is not None
    assert (flat.last_flat, flat.first_grown, flat.crossing) == (512, None, None)
    assert flat.text() == "none up to 512"
    steep = find_knee([(x, q(x)) for x in POWERS])
    assert steep is not None
    assert steep.last_flat is not None
    assert find_knee([(1.0, q(1)), (2.0, q(1))]) is None


def test_one_slow_point_in_the_flat_part_is_no_knee() -> None:
    times = [1.0, 1.0, 1.0, 1.5, 1.0, 1.0, 2.0, 4.0]
    knee = find_knee([(x, q(time)) for x, time in zip(POWERS, times, strict=False)])
    assert knee is not None
    assert (knee.last_flat, knee.first_grown) == (32, 64)


def test_a_wide_spread_makes_a_knee_uncertain() -> None:
    knee = find_knee([(x, q(max(1.0, x / 20), spread=0.8)) for x in POWERS])
    assert knee is not None
    assert not knee.certain


@pytest.mark.parametrize(
    ("value", "spread", "verdict"),
    [(2.0, 0.02, HOLDS), (2.0, 0.5, UNSURE), (1.72, 0.1, UNSURE), (1.0, 0.1, FAILS), (4.6, 0.02, FAILS)],
)
def test_a_verdict_needs_the_whole_interval(value: float, spread: float, verdict: str) -> None:
    assert within(q(value, spread), 1.7, 2.3) == verdict


@given(st.floats(0.1, 10), st.floats(0, 1), st.floats(0.1, 5), st.floats(0.1, 5))
def test_a_wider_spread_never_turns_one_verdict_into_the_other(
    value: float, spread: float, low: float, width: float
) -> None:
    narrow, wide = within(q(value, spread / 2), low, low + width), within(q(value, spread), low, low + width)
    assert wide in (narrow, UNSURE)


def test_what_is_not_known_can_not_be_told() -> None:
    assert within(None, 0, 1) == UNSURE
    assert within(q(math.nan), 0, 1) == UNSURE
    assert exactly(None) == UNSURE
    assert (exactly(True), exactly(False)) == (HOLDS, FAILS)


def test_the_weakest_verdict_counts() -> None:
    assert all_of([HOLDS, UNSURE, FAILS]) == FAILS
    assert all_of([HOLDS, UNSURE]) == UNSURE
    assert all_of([HOLDS, HOLDS]) == HOLDS
    assert all_of([]) == UNSURE


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.floats(0, 0.9), st.floats(0, 0.9))
def test_a_ratio_lies_in_its_interval(over: float, under: float, one: float, two: float) -> None:
    found = ratio(q(over, one), q(under, two))
    assert found.low <= found.value <= found.high
    assert found.value == over / under


def test_exponents_and_intervals() -> None:
    assert exponent((1, 1), (8, 8)) == pytest.approx(1)
    assert exponent((1, 5), (8, 5)) == 0
    assert exponent((1, 0), (8, 5)) == 0
    assert interval(Quantity(value=2, low=1.95, high=2.04, runs=3)) == "2.00 (1.95 to 2.04)"
