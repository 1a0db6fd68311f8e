"""Medians, quartiles and the end of a sweep."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.hardware.measure.stats import past_peak, quantity
from gobrrr.model.measured import Quantity

SAMPLES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=50)


@given(SAMPLES)
def test_the_median_lies_between_the_quartiles(samples: list[float]) -> None:
    found = quantity(samples)
    assert min(samples) <= found.low <= found.value <= found.high <= max(samples)
    assert found.value == pytest.approx(statistics.median(samples))
    assert found.runs == len(samples)


@given(SAMPLES, st.randoms())
def test_the_order_of_samples_does_not_matter(samples: list[float], random: object) -> None:
    shuffled = sorted(samples, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert quantity(shuffled) == quantity(samples)


def test_quartiles_by_hand() -> None:
    assert quantity([5, 1, 2, 4, 3]) == Quantity(value=3, low=2, high=4, runs=5, best=1)
    assert quantity([7.0]).spread == 0
    assert quantity([1, 2, 3, 4, 5]).spread == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no samples"):
        quantity([])


def test_a_rate_turns_the_quartiles_around() -> None:
    took = Quantity(value=2.0, low=1.0, high=4.0, runs=9)
    assert took.rate(8.0) == Quantity(value=4.0, low=2.0, high=8.0, runs=9)
    assert took.scaled(0.5) == Quantity(value=1.0, low=0.5, high=2.0, runs=9)


@pytest.mark.parametrize(
    ("rates", "over"),
    [([], False), ([1], False), ([1, 2, 3], False), ([1, 3, 2], False), ([1, 3, 2, 3.01], True), ([3, 2, 1], True)],
)
def test_a_sweep_ends_two_sizes_after_its_peak(rates: list[float], over: bool) -> None:
    assert past_peak(rates) is over
