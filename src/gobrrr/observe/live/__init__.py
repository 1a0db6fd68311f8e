"""The live door: runs a step, a loop or a script, times it without the profiler, and records it with the profiler.

The program is restored afterwards: no hook, setting or profiler stays, after exceptions too. An exception of the
program passes through unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gobrrr.errors import UsageError

if TYPE_CHECKING:
    from gobrrr.observe.live.options import WatchOptions
    from gobrrr.observe.live.watcher import Progress, Watcher

__all__ = ["make_watcher", "need_torch"]

OLDEST_LIVE_TORCH = (2, 6)
"""The oldest version of torch that is supported."""


def need_torch() -> None:
    """Raises UsageError where torch is missing or too old to be watched."""
    try:
        import torch
    except ImportError as error:
        if getattr(error, "name", None) not in (None, "torch"):
            raise UsageError(f"torch is installed but can't be imported: {error}") from None
        raise UsageError("a live run needs torch: pip install torch") from None
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())
    if version < OLDEST_LIVE_TORCH:
        raise UsageError(f"torch {torch.__version__} is too old for a live run: 2.6 or newer")


def make_watcher(
    options: WatchOptions | None = None, progress: Progress | None = None, steps_from: str = ""
) -> Watcher:
    """A watcher that was not opened yet. Raises UsageError without torch."""
    need_torch()
    from gobrrr.observe.live.options import WatchOptions as Defaults
    from gobrrr.observe.live.watcher import Watcher as Made

    return Made(options=options or Defaults(), progress=progress, steps_from=steps_from)
