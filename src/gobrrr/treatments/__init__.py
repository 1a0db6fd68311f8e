"""What helps: one file a treatment, found by `catalogue`; framework: what they share."""

from __future__ import annotations

from gobrrr.treatments.framework.base import Treatment, catalogue

__all__ = ["Treatment", "catalogue"]
