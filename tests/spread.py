"""Of what many traces are tested with, a part in CI and all of it at night."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

EVERY = 4
NIGHT = os.environ.get("GOBRRR_TESTS") == "night"
"""`make nightly` sets it."""


def spread(values: Sequence[Any], every: int = EVERY) -> list[Any]:
    """The values as parameters of a test: the first and each `every`th after it run in CI, the others are slow."""
    return [value if at % every == 0 else slow(value) for at, value in enumerate(values)]


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
