"""The text of a value in the user's program: of numbers and strings, and of nothing else.

Other objects define their own text: a storage prints all of its bytes, an object may raise.
"""

from __future__ import annotations

MOST_ITEMS, MOST_CHARACTERS = 4_096, 8_192
"""Limits of a list and of a text: torch's own for the arguments in its execution traces."""

PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))
NUMBER_TYPES = (bool, int, float, complex)
"""The types that have a text here, and the numbers among them."""

_LONG_BITS = 1_024  # Python refuses to print the digits of a longer number, or takes long


def plain_text(value: object) -> str | None:
    """The text of a number, a string (its beginning) or None; None for every other value."""
    if value is None or isinstance(value, bool):
        return str(value)
    # the base class's text: a subclass may define its own
    if isinstance(value, int):
        return int.__repr__(value) if int.bit_length(value) <= _LONG_BITS else hex(value)[:MOST_CHARACTERS]
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, complex):
        return complex.__repr__(value)
    if isinstance(value, str):
        return str.__str__(value)[:MOST_CHARACTERS]
    if isinstance(value, bytes):
        return bytes.__repr__(bytes.__getitem__(value, slice(MOST_CHARACTERS)))
    return None


def plain_list(values: list[object] | tuple[object, ...]) -> str:
    """The text of a list of such values, "[1, True, ]": items without a text are left empty, and so is a list that is
    too long."""
    if len(values) > MOST_ITEMS:
        return ""
    return "[" + ", ".join(plain_text(value) or "" for value in values) + "]"
