"""Measured numbers as text, in the units of gobrrr.model.measured and gobrrr.model.experiment."""

from __future__ import annotations

import math

from gobrrr import units
from gobrrr.model.measured import Quantity


def text(value: float | Quantity | None, unit: str) -> str:
    """A number in `unit` ("s", "B", "B/s", "FLOP", "FLOP/s", "1/s", "share", "x", "FLOP/B", "bits" or "")."""
    if isinstance(value, Quantity):
        value = value.value
    if value is None or not math.isfinite(value):
        return units.UNKNOWN_TEXT
    if unit == "s":
        return units.duration(value * 1e9) if value == 0 or abs(value) >= 1e-6 else f"{value * 1e9:.3g} ns"
    if unit in ("B/s", "FLOP/s", "1/s"):
        return units.rate(value, {"1/s": ""}.get(unit, unit[:-2]))
    plain = {"B": units.bytes_, "FLOP": units.flop, "share": units.percent, "x": _times, "FLOP/B": _number}
    return plain.get(unit, units.count)(value)


def spread(value: object) -> str:
    """The interquartile range over the median: "0.4 %"; "" for a single run."""
    return units.percent(value.spread) if isinstance(value, Quantity) and value.runs > 1 else ""


def _times(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _number(value: float) -> str:
    return f"{value:,.3g}"
