"""One watcher at a time: each would see the other's doings, and torch's profiler is one."""

from __future__ import annotations

import threading
from typing import Protocol

from gobrrr.errors import UsageError


class Watching(Protocol):
    """What is open. `gives_way`: it is closed where another is to be opened, and is `displaced` then."""

    gives_way: bool
    displaced: bool

    def close(self) -> None:
        """Everything as it was."""


_OPEN: list[Watching] = []
"""What is open now, of which there is one at most."""
_LOCK = threading.Lock()


def take(watching: Watching, *, displace: bool) -> None:
    """It is this one's turn. Raises UsageError where another has it and does not give way, or `displace` is False."""
    if displace and _OPEN and _OPEN[0].gives_way:
        _OPEN[0].displaced = True
        _OPEN[0].close()
    with _LOCK:
        if _OPEN:
            raise UsageError("steps are watched already: one watch or diagnosis at a time, not one within another")
        _OPEN.append(watching)


def give_back(watching: Watching) -> None:
    """Its turn is over, if it was."""
    with _LOCK:
        _OPEN[:] = [other for other in _OPEN if other is not watching]
