"""From samples to a median with quartiles; when a sweep has seen its peak. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.model.measured import Quantity

PEAK_GAIN = 1.02
"""A size that is less than 2 % faster than the best so far is no new peak."""
PEAK_PATIENCE = 2
"""A sweep ends after this many sizes in a row without a new peak."""


def quantity(samples: Sequence[float]) -> Quantity:
    """Median, least and quartiles of times (linear interpolation between samples). Raises ValueError for none."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    low, value, high = (quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    return Quantity(value=value, low=low, high=high, runs=len(ordered), best=ordered[0])


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted samples lie."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    value = ordered[below] + (ordered[above] - ordered[below]) * (place - below)
    return min(max(value, ordered[below]), ordered[above])  # rounding must not leave the interval


def past_peak(rates: Sequence[float]) -> bool:
    """Whether the last PEAK_PATIENCE rates of a sweep brought no new peak."""
    best, without = 0.0, 0
    for rate in rates:
        if rate > best * PEAK_GAIN:
            without = 0
        else:
            without += 1
        best = max(best, rate)
    return without >= PEAK_PATIENCE
