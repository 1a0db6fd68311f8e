"""Counting: an op and its arguments in, the FLOP and bytes that it must do out.

`price` is the door. A rule for an op of your own is three lines: see `gobrrr.cost.registry`.
"""

from __future__ import annotations

from gobrrr.cost.parse import dtype_name, parse_inputs
from gobrrr.cost.pricing import price
from gobrrr.cost.registry import Uncounted, names, register, rule, unregister

__all__ = ["Uncounted", "dtype_name", "names", "parse_inputs", "price", "register", "rule", "unregister"]
