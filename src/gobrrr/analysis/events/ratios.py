"""Shares and rates of sums that may be 0: a trace may say of any event that it took no time."""

from __future__ import annotations


def share(part: float, whole: float) -> float | None:
    """`part` of `whole`; None where the whole is nothing, so that there is nothing to take a share of."""
    return part / whole if whole else None


def rate(amount: float, ns: float) -> float | None:
    """An amount a second; None where it took no time."""
    return amount / ns * 1e9 if ns else None
