"""Of what many traces are tested with, a part in CI and all of it at night."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

EVERY = 8
NIGHT = os.environ.get("GOBRRR_TESTS") == "night"
"""`make nightly` sets it."""


def spread(values: Sequence[Any], every: int = EVERY) -> list[Any]:
    """The values as parameters of a test: one in `every` runs in CI, the others are slow.

    Traces are chosen by their names, the same ones in every list, so that what is made of a trace serves many tests;
    of other values the first and each `every`th after it.
    """
    chosen = [_chosen(value, at, every) for at, value in enumerate(values)]
    if chosen and not any(chosen):
        chosen[0] = True
    return [value if one else slow(value) for value, one in zip(values, chosen, strict=True)]


def _chosen(value: Any, at: int, every: int) -> bool:
    value = value.values[0] if hasattr(value, "marks") else value
    name = value.name.partition(".json")[0] if isinstance(value, Path) else None
    return at % every == 0 if name is None else crc32(name.encode()) % every == 0


def slow(value: Any) -> Any:
    """A parameter, or a tuple of some, that runs in `make nightly` only; it keeps the marks that it has."""
    given = value if hasattr(value, "marks") else pytest.param(*value if isinstance(value, tuple) else (value,))
    return pytest.param(*given.values, marks=[*given.marks, pytest.mark.slow], id=given.id)


def examples(night: int, ci: int | None = None) -> int:
    """How many examples hypothesis makes: all at night; in CI a fifth, at least five, or `ci`."""
    if NIGHT:
        return night
    return max(night // 5, min(night, 5)) if ci is None else ci


def some(values: Sequence[Any], every: int = 3) -> list[Any]:
    """All values at night; in CI the first and each `every`th after it."""
    return list(values if NIGHT else values[::every])
