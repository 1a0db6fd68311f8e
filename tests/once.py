"""What several processes of a test run need is made by one of them."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")
SHARED = "GOBRRR_TESTS_SHARED"
"""The folder that the processes of a run share; none where the run is one process."""


def once(key: str, make: Callable[[], Made]) -> Made:
    """What `make` makes, or what another process of this run has made of the same key."""
    folder = os.environ.get(SHARED)
    if not folder:
        return make()
    path = Path(folder) / hashlib.sha256(key.encode()).hexdigest()
    if path.is_file():
        found: Made = pickle.loads(path.read_bytes())
        return found
    made = make()
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(pickle.dumps(made))
    draft.replace(path)
    return made
