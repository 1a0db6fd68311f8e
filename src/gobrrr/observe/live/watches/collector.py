"""Python's garbage collector: when it ran in the window, and for how long it stopped the program."""

from __future__ import annotations

import gc
from time import perf_counter_ns
from typing import Any

from gobrrr.model.live import Collection, Collector


class CollectorWatch:
    """Times each run of the collector between `window_begins` and `window_ends`.

    The program's own `gc.collect()` counts too: it stops the program as well.
    """

    def __init__(self) -> None:
        self._runs: list[Collection] = []
        self._began: int | None = None
        self._at: int | None = None  # the step that runs now; None outside the window
        self._steps: int | None = None
        self._enabled = False
        self._tracked: int | None = None
        self._frozen: int | None = None

    def open(self) -> None:
        """Add our callback to the collector's."""
        if self._ran not in gc.callbacks:
            gc.callbacks.append(self._ran)

    def window_begins(self) -> None:
        """Count runs from here on."""
        self._runs.clear()
        self._began, self._at = None, 0
        self._enabled = gc.isenabled()

    def step(self, index: int) -> None:
        """A run from here on falls into the next step."""
        self._at = index + 1

    def window_ends(self, steps: int) -> None:
        """Count the objects that the collector has to visit, which takes about as long as one full collection."""
        self._at = None
        self._steps = steps
        self._enabled = self._enabled and gc.isenabled()
        self._frozen = gc.get_freeze_count()
        self._tracked = len(gc.get_objects())

    def close(self) -> None:
        """Remove our callback."""
        self._at = None
        if self._ran in gc.callbacks:
            gc.callbacks.remove(self._ran)

    def found(self) -> Collector | None:
        """The runs of the window; `enabled` only where the collector was on at both its ends."""
        if self._steps is None:
            return None
        return Collector(
            steps=self._steps,
            enabled=self._enabled,
            runs=tuple(self._runs),
            tracked=self._tracked,
            frozen=self._frozen,
        )

    def _ran(self, phase: str, info: dict[str, Any]) -> None:
        at = self._at
        if at is None:
            return
        if phase == "start":
            self._began = perf_counter_ns()
        elif self._began is not None:
            taken = perf_counter_ns() - self._began
            self._runs.append(Collection(step=at, ns=float(taken), generation=int(info["generation"])))
            self._began = None
