"""The text of a value that somebody else's program holds: of numbers, strings and nothing else.

Anything else decides for itself what its text is: a storage prints all of its bytes, an object may raise.
"""

from __future__ import annotations

MOST_ITEMS, MOST_CHARACTERS = 4_096, 8_192
"""What is looked at of a list and of a text: torch's own limits for the arguments in its execution traces."""

PLAIN = (bool, int, float, complex, str, bytes, type(None))
NUMBERS = (bool, int, float, complex)

_LONG_BITS = 1_024  # the digits of a longer number are refused by Python, or take long


def plain_text(value: object) -> str | None:
    """The text of a number, of a string (its beginning), of None; None for everything else."""
    if value is None or isinstance(value, bool):
        return str(value)
    # not what a subclass makes of it
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
    """The text of a list of such values, "[1, True, ]": nothing stands for what has no text, and for a list that is
    too long."""
    if len(values) > MOST_ITEMS:
        return ""
    return "[" + ", ".join(plain_text(value) or "" for value in values) + "]"
