"""Machines by name: the datasheet table with a source for each figure, and the matching that refuses what it lacks."""

from __future__ import annotations

from gobrrr.hardware.match import Match, find, known, match_device
from gobrrr.hardware.table import load

__all__ = ["Match", "find", "known", "load", "match_device"]
