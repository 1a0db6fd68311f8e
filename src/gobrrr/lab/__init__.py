"""The article's own experiments on the machine at hand, one file each, with what holds here and what does not."""

from __future__ import annotations

from gobrrr.lab.catalogue import EXPERIMENTS, run

__all__ = ["EXPERIMENTS", "run"]
