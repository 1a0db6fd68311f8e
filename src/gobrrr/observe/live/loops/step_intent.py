"""Whether a program that has only evaluated so far is written to train: its own source says so."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

from gobrrr.observe.installed import is_users

_TRAINS = re.compile(rb"\.backward\(|\boptim\.[A-Z]|Trainer\(|\.fit\(|\bAccelerator\(")
MOST_BYTES = 4_000_000
"""Source that is read at most."""


def training_is_written() -> bool:
    """Whether a file of the program's own, loaded by now, takes a backward pass, makes an optimizer or a trainer."""
    left = MOST_BYTES
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
    except TypeError:  # not a module, whatever it does there
        return None
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    return Path(file) if is_users(file) else None
