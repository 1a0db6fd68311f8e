"""What helps: one file a treatment, found by `catalogue`."""

from __future__ import annotations

from gobrrr.treatments.base import Treatment, catalogue

__all__ = ["Treatment", "catalogue"]
