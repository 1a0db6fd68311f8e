"""Whether the source of a program has code that trains, though it has only evaluated so far."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

from gobrrr.observe.installed import is_users

_TRAINS = re.compile(rb"\.backward\(|\boptim\.[A-Z]|Trainer\(|\.fit\(|\bAccelerator\(")
"""What code that trains contains: a backward pass, or the making of an optimizer or a trainer."""
MOST_SOURCE_BYTES = 4_000_000
"""Source of the program that is read, in bytes; chosen."""


def training_is_written() -> bool:
    """Whether a loaded file of the program's own has code that trains."""
    left = MOST_SOURCE_BYTES
    for path in {path for module in list(sys.modules.values()) if (path := _own_file(module)) is not None}:
        try:
            text = path.read_bytes()[:left]
        except OSError:
            continue
        if _TRAINS.search(text):
            return True
        left -= len(text)
        if left <= 0:
            break
    return False


def _own_file(module: ModuleType) -> Path | None:
    try:
        file = vars(module).get("__file__")
    except TypeError:  # sys.modules may hold objects that are no modules
        return None
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    return Path(file) if is_users(file) else None
