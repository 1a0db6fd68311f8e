"""Counts in sentences."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """`counted(1200, "byte")` is "1,200 bytes"; `many` where an s does not make the plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
