"""Numbers of a trace, exact: microseconds with fractions as text -> int64 nanoseconds.

A float64 holds 53 bits: a Unix time in microseconds with three decimals needs 61. Below 2^43 us (102 days, the modern
dialects with their base time) a float is within half a nanosecond of the text, so that rounding gives the text back.
Above, the text itself is read, in numpy, a column of characters at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

INVALID = np.iinfo(np.int64).min
"""Stands for a time that is absent, not a number or beyond int64 nanoseconds (292 years)."""

_EXACT = Context(prec=60)  # not the caller's, which may hold fewer digits
_WIDTH = 32
_LIMIT_US = 9_200_000_000_000_000  # 9.2e18 ns, just inside int64
_DIGITS = 16  # with 16 digits before the point and no leading 9, three more still fit int64


EXACT_BELOW_US = float(1 << 43)
"""Neighbouring floats below it are at most 2^-10 us apart: a value read from three decimals is off by < 0.49 ns."""


def native(values: list[Any]) -> NDArray[np.int64] | None:
    """Nanoseconds of numbers that a JSON decoder already turned into ints and floats; None if digits were lost."""
    kinds = set(map(type, values))
    if kinds <= {int, float}:
        try:
            numbers = np.array(values, dtype=np.float64)
        except OverflowError:
            numbers = np.array([math.inf])
        if len(numbers) == 0 or bool(np.all(np.abs(numbers) < EXACT_BELOW_US)):
            whole = np.floor(numbers)
            return whole.astype(np.int64) * 1000 + np.rint((numbers - whole) * 1000).astype(np.int64)
        if kinds == {int} and bool(np.all(np.abs(numbers) < _LIMIT_US)):
            return np.array(values, dtype=np.int64) * 1000
    if float in kinds and any(type(value) is float and abs(value) >= EXACT_BELOW_US for value in values):
        return None
    return np.fromiter(map(single, values), dtype=np.int64, count=len(values))


def single(value: Any) -> int:
    """Nanoseconds of one decoded value of any type (microseconds), or `INVALID`."""
    if type(value) is int:
        return value * 1000 if abs(value) <= _LIMIT_US else INVALID
    return one(str(value).encode("utf-8", "replace")) if isinstance(value, float | str) else INVALID


def nanoseconds(raws: Sequence[msgspec.Raw]) -> NDArray[np.int64]:
    """Exact nanoseconds of a column of raw JSON numbers in microseconds (halves of a nanosecond round to even).

    What is not a plain decimal (exponents, quotes, null, NaN) goes through `Decimal`, one by one.
    """
    if not raws:
        return np.empty(0, dtype=np.int64)
    texts = [bytes(raw) for raw in raws]
    longest = max(map(len, texts))
    if longest > _WIDTH:
        texts = [text if len(text) <= _WIDTH else b"?" for text in texts]
        result = _columns(texts, _WIDTH)
    else:
        result = _columns(texts, max(1, longest))
    for row in np.flatnonzero(result == INVALID).tolist():
        result[row] = one(raws[row])
    return result


def _columns(texts: list[bytes], width: int) -> NDArray[np.int64]:
    """Horner's scheme over the characters of all rows at once: digits before and after the point, places counted."""
    characters = np.array(texts, dtype=f"S{width}").view(np.uint8).reshape(len(texts), width)
    columns = np.ascontiguousarray(characters.T)
    value = np.zeros(len(texts), dtype=np.int64)
    places = np.zeros(len(texts), dtype=np.int8)
    # what is behind the third decimal: 0 nothing, 1 less than half, 2 half, 3 more
    rounding = np.zeros(len(texts), dtype=np.int8)
    after_point = np.zeros(len(texts), dtype=bool)
    before_point = np.zeros(len(texts), dtype=np.int8)
    sound = columns[0] != 0
    negative = columns[0] == ord("-")
    for number, column in enumerate(columns):
        if not column.any():
            break
        digit = (column - ord("0")).astype(np.uint8)
        is_digit = digit <= 9
        is_point = column == ord(".")
        sound &= is_digit | (column == 0) | (is_point & ~after_point) | (negative if number == 0 else False)
        whole = is_digit & (places < 3)
        value = np.where(whole, value * 10 + digit, value)
        beyond = is_digit & (places >= 3)
        if beyond.any():
            rounding = _round(rounding, digit, beyond, first=places == 3)
        before_point += (is_digit & ~after_point).astype(np.int8)
        places += (after_point & is_digit).astype(np.int8)
        after_point |= is_point
    kept = np.minimum(places, 3)
    first = np.where(negative, columns[min(1, width - 1)], columns[0])
    sound &= (before_point > 0) & ((before_point < _DIGITS) | ((before_point == _DIGITS) & (first != ord("9"))))
    value = _scaled(value, kept)
    up = (rounding == 3) | ((rounding == 2) & ((value & 1) == 1))
    value += up
    value[negative] = -value[negative]
    value[~sound] = INVALID
    return value


def _scaled(value: NDArray[np.int64], places: NDArray[np.int8]) -> NDArray[np.int64]:
    """value * 10^(3 - places): from digits read to nanoseconds."""
    power = np.array([1000, 100, 10, 1], dtype=np.int64)
    return value * power[places]


def _round(
    state: NDArray[np.int8], digit: NDArray[np.uint8], here: NDArray[np.bool_], *, first: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """Follow the digits behind the third decimal: the first decides, later ones only break the tie at 5."""
    opening = np.where(digit > 5, 3, np.where(digit == 5, 2, np.where(digit > 0, 1, 0))).astype(np.int8)
    state = np.where(here & first, opening, state)
    broken = here & ~first & (digit > 0)
    state = np.where(broken & (state == 2), np.int8(3), state)
    return np.where(broken & (state == 0), np.int8(1), state)


def one(raw: msgspec.Raw | bytes) -> int:
    """Nanoseconds of one raw JSON value: number, quoted number, or `INVALID`."""
    text = bytes(raw).decode("utf-8", "replace").strip().strip('"').strip()
    try:
        value = Decimal(text)
    except InvalidOperation:
        return INVALID
    if not value.is_finite() or value.copy_abs() > _LIMIT_US:
        return INVALID
    return int(_EXACT.multiply(value, Decimal(1000)).to_integral_value(context=_EXACT))


def integer(value: object) -> int:
    """An identifier as int64: ints, floats that are whole, digit strings; -1 for anything else or out of range."""
    if type(value) is int:
        return value if -1 <= value < 1 << 63 else -1
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() and 0 <= value < 2.0**63 else -1
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdigit() and len(text) < 20:
            return integer(int(text))
    return -1
