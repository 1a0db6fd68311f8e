"""Times for tests: an H100's sweep as article.json has it, and quantities with a given spread."""

from __future__ import annotations

from gobrrr.lab.article import h100
from gobrrr.model.measured import Quantity


def q(value: float, spread: float = 0.01) -> Quantity:
    """A median with quartiles `spread` of it apart."""
    return Quantity(value=value, low=value * (1 - spread / 2), high=value * (1 + spread / 2), runs=20)


def h100_sweep() -> list[tuple[float, Quantity]]:
    """(repeat, seconds) of the H100."""
    return [(float(repeat), q(ms * 1e-3)) for repeat, ms, _, _ in h100()["sweep"]]
