"""A step's body, three times, as the conditions receive it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from gobrrr.analysis.evidence import Evidence
from tests.conftest import H100, H100_EXTRA
from tests.evidence import evidence_from
from tests.traces import Trace


def seen_of(folder: Path, body: Callable[[Trace], None], count: int = 3, **options: object) -> Evidence:
    """The evidence of `count` steps of `body`."""
    trace = Trace(**options)  # type: ignore[arg-type]
    for number in range(count):
        with trace.step(number):
            body(trace)
    return evidence_from(trace.write(folder))


@cache
def shipped(name: str) -> Evidence:
    """A trace of the package's own data."""
    return evidence_from(H100 / f"{name}.json.gz")


@cache
def extra(name: str) -> Evidence:
    """A trace of the tests' data: held-out ("holdout/NAME") or of two ranks."""
    return evidence_from(H100_EXTRA / f"{name}.json.gz")
