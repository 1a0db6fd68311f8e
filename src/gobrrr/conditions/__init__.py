"""What can be wrong with a step: one file a condition, found by `catalogue`."""

from __future__ import annotations

from gobrrr.conditions.base import Condition, catalogue

__all__ = ["Condition", "catalogue"]
