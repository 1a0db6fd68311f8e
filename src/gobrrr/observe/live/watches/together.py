"""The observers of a live run, called together. One that fails is dropped: what it watches counts as not observed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from gobrrr.guarded import failed
from gobrrr.observe.live.watches.collector import CollectorWatch
from gobrrr.observe.live.watches.compiler import CompilerWatch
from gobrrr.observe.live.watches.memory import MemoryWatch
from gobrrr.observe.live.watches.switches import SwitchWatch
from gobrrr.observe.live.watches.threads import ThreadWatch


class Observer(Protocol):
    """Watches one thing while the program's steps run without the profiler, at almost no cost to them.

    Its methods are called in this order, each from the thread that runs the steps; after an exception only `close` and
    `found` are. None raises for what this torch or this system does not offer: what is missing is None.
    """

    def open(self) -> None:
        """Put hooks in place; once, before the first step, so before any warm-up or compilation."""

    def window_begins(self) -> None:
        """The steps without the profiler begin now."""

    def step(self, index: int) -> None:
        """Step `index` of the window, counted from 0, has ended. Takes well under 2 us."""

    def window_ends(self, steps: int) -> None:
        """The window is over, after `steps` steps. Slow work is done here."""

    def close(self) -> None:
        """Restore everything that `open` changed, unless the program has changed it since. Idempotent."""

    def found(self) -> msgspec.Struct | None:
        """The record of model/live.py; None where there was nothing to look at, or no window."""


class Watches:
    """Calls each method on all observers. `remarks`: which observers failed."""

    def __init__(self) -> None:
        self.compiler = CompilerWatch()
        self._observers: dict[str, Observer] = {
            "collector": CollectorWatch(),
            "compiled": self.compiler,
            "switches": SwitchWatch(),
            "threads": ThreadWatch(),
            "memory": MemoryWatch(),
        }
        self.remarks: list[str] = []

    def open(self) -> None:
        """Put the hooks in place."""
        self._tell(lambda observer: observer.open())

    def window_begins(self) -> None:
        """The steps without the profiler begin now."""
        self._tell(lambda observer: observer.window_begins())

    def step(self, index: int) -> None:
        """Step `index` of the window has ended."""
        self._tell(lambda observer: observer.step(index))

    def window_ends(self, steps: int) -> None:
        """The window is over, after `steps` steps."""
        self._tell(lambda observer: observer.window_ends(steps))

    def close(self) -> None:
        """Restore everything."""
        self._tell(lambda observer: observer.close())

    def found(self) -> dict[str, Any]:
        """The records, by the field of `Live` that they are for."""
        return self._tell(lambda observer: observer.found())

    def _tell(self, what: Callable[[Observer], Any]) -> dict[str, Any]:
        """What each observer answers, without those that fail."""
        answers: dict[str, Any] = {}
        for name, observer in list(self._observers.items()):
            try:
                answers[name] = what(observer)
            except Exception as error:
                del self._observers[name]
                with suppress(Exception):
                    observer.close()
                self.remarks.append(f"{OBSERVED_PARTS[name]} {failed(name, error)}")
        return answers


OBSERVED_PARTS = {
    "collector": "the runs of Python's garbage collector",
    "compiled": "what the compiler did",
    "switches": "torch's settings",
    "threads": "the threads",
    "memory": "the memory",
}
"""What each observer watches, in the words of a note."""
