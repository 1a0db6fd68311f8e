"""The observers of a live run together: one that fails is taken out, and what it watches was not observed."""

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


class Watches:
    """What an `Observer` can be told, told to all of them. `remarks`: which ones failed."""

    def __init__(self) -> None:
        self.compiler = CompilerWatch()
        self._each: dict[str, Observer] = {
            "collector": CollectorWatch(),
            "compiled": self.compiler,
            "switches": SwitchWatch(),
            "threads": ThreadWatch(),
            "memory": MemoryWatch(),
        }
        self.remarks: list[str] = []

    def open(self) -> None:
        """Hooks in place."""
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
        """Everything is as it was."""
        self._tell(lambda observer: observer.close())

    def found(self) -> dict[str, Any]:
        """The records, by the field of `Live` that they are for."""
        records: dict[str, Any] = {}

        def ask(name: str, one: Observer) -> None:
            records[name] = one.found()

        for name, observer in list(self._each.items()):
            self._guard(name, observer, lambda watch, name=name: ask(name, watch))  # type: ignore[misc]
        return records

    def _tell(self, what: Callable[[Observer], None]) -> None:
        for name, observer in list(self._each.items()):
            self._guard(name, observer, what)

    def _guard(self, name: str, observer: Observer, what: Callable[[Observer], None]) -> None:
        try:
            what(observer)
        except Exception as error:
            del self._each[name]
            with suppress(Exception):
                observer.close()
            self.remarks.append(f"{WORDS[name]} {failed(name, error)}")


WORDS = {
    "collector": "the runs of Python's garbage collector",
    "compiled": "what the compiler did",
    "switches": "torch's settings",
    "threads": "the threads",
    "memory": "the memory",
}
