"""Microseconds as text -> nanoseconds, against Decimal."""

from __future__ import annotations

import decimal
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.observe import numbers

PLAIN = st.builds(
    lambda sign, whole, fraction: f"{sign}{whole}" + (f".{fraction}" if fraction else ""),
    st.sampled_from(["", "-"]),
    st.integers(0, 9_199_999_999_999_999) | st.integers(0, 99),
    st.text("0123456789", max_size=14) | st.sampled_from(["0005", "0015", "00050", "00051", "9995", "0"]),
)
SCIENTIFIC = st.builds(lambda text, power: f"{text}e{power}", PLAIN, st.integers(-30, 0))


def exact(text: str) -> int:
    context = decimal.Context(prec=80, rounding=ROUND_HALF_EVEN)
    return int(context.multiply(Decimal(text), Decimal(1000)).to_integral_value(context=context))


@given(st.lists(PLAIN | SCIENTIFIC, min_size=1, max_size=8))
def test_columns_of_text(texts: list[str]) -> None:
    found = numbers.nanoseconds([msgspec.Raw(text.encode()) for text in texts])
    assert found.tolist() == [exact(text) for text in texts]


@given(st.lists(st.integers(-(1 << 52), 1 << 52), min_size=1, max_size=8))
def test_columns_of_numbers(ns: list[int]) -> None:
    """What a JSON decoder makes of three decimals below 2^43 us gives the nanoseconds back."""
    found = numbers.native([float(Decimal(value) / 1000) for value in ns])
    assert found is not None
    assert found.tolist() == ns


def test_floats_that_lost_digits_are_refused() -> None:
    assert numbers.native([1.0, 1669783687352244.123]) is None


@pytest.mark.parametrize(
    "value", [None, True, "", "soon", "NaN", "inf", [1], {}, float("nan"), 1 << 70, "1e30", "\ud800"]
)
def test_what_is_no_time(value: Any) -> None:
    assert numbers.single(value) == numbers.INVALID


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), (7.0, 7), ("7", 7), (" 7 ", 7), (7.5, -1), (-3, -1), ("x", -1), ("٣", -1), (1 << 63, -1), (None, -1),
     ((1 << 63) - 1, (1 << 63) - 1), (float("inf"), -1), ("9" * 5000, -1), (True, -1), ([7], -1)],
)  # fmt: skip
def test_identifiers(value: Any, expected: int) -> None:
    assert numbers.integer(value) == expected


def test_the_callers_decimal_context_is_not_used() -> None:
    with decimal.localcontext() as context:
        context.prec = 3
        assert numbers.single("1669783687352244.123") == 1669783687352244123
