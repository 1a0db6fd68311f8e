"""Of what many traces are tested with, a part in CI and all of it at night."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

EVERY = 4


def spread(values: Sequence[Any], every: int = EVERY) -> list[Any]:
    """The values as parameters of a test: the first and each `every`th after it run in CI, the others are slow."""
    return [value if at % every == 0 else slow(value) for at, value in enumerate(values)]


def slow(value: Any) -> Any:
    """A parameter that runs in `make nightly` only; it keeps the marks that it has."""
    given = value if hasattr(value, "marks") else pytest.param(value)
    return pytest.param(*given.values, marks=[*given.marks, pytest.mark.slow], id=given.id)
