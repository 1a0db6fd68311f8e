"""How often torch's compiler has compiled something in this process."""

from __future__ import annotations

import sys


def compiled() -> int:
    """The frames that it was given so far; 0 where it was never loaded."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0
    frames = utils.counters["frames"]
    return int(frames["total"])
