"""What every observer of a live run can be told."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Observer(Protocol):
    """Watches one thing while the program's steps run without the profiler, at almost no cost to them.

    The calls come in this order, each from the thread that runs the steps; after an exception only `close` and `found`
    do. None of them raises for something that this torch or this system does not offer: what is missing is None.
    """

    def open(self) -> None:
        """Put hooks in place; once, before the first step, so before any warm-up or compilation."""

    def window_begins(self) -> None:
        """The steps without the profiler begin now."""

    def step(self, index: int) -> None:
        """Step `index` of the window, counted from 0, has ended. Takes well under 2 us."""

    def window_ends(self, steps: int) -> None:
        """The window is over, after `steps` steps. What takes longer is done here."""

    def close(self) -> None:
        """Everything is as it was before `open`, what the program itself changed since left alone. Idempotent."""

    def found(self) -> msgspec.Struct | None:
        """The record of model/live.py; None where there was nothing to look at, or no window."""
