"""Shares and rates of sums that may be 0: events of a trace may have no duration."""

from __future__ import annotations


def share(part: float, whole: float) -> float | None:
    """`part` over `whole`; None where the whole is 0."""
    return part / whole if whole else None


def rate(amount: float, ns: float) -> float | None:
    """An amount per second; None where the time is 0."""
    return amount / ns * 1e9 if ns else None
