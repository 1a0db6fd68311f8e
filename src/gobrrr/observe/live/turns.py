"""One watcher at a time: each would record what the other does, and torch can run only one profiler."""

from __future__ import annotations

import threading
from typing import Protocol

from gobrrr.errors import UsageError


class Watching(Protocol):
    """A watcher that is open. `gives_way`: it may be closed to open another, and is `displaced` then."""

    gives_way: bool
    displaced: bool

    def close(self) -> None:
        """Restore everything."""


_OPEN: list[Watching] = []
"""The watcher that is open now: one at most."""
_LOCK = threading.Lock()
"""Guards `_OPEN`."""


def take(watching: Watching, *, displace: bool) -> None:
    """Open this watcher. Raises UsageError where another is open that does not give way, or `displace` is False."""
    if displace and _OPEN and _OPEN[0].gives_way:
        _OPEN[0].displaced = True
        _OPEN[0].close()
    with _LOCK:
        if _OPEN:
            raise UsageError("steps are watched already: one watch or diagnosis at a time, not one within another")
        _OPEN.append(watching)


def give_back(watching: Watching) -> None:
    """This watcher is no longer open."""
    with _LOCK:
        _OPEN[:] = [other for other in _OPEN if other is not watching]
