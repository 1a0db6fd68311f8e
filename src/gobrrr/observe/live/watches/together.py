"""The observers of a live run together: one that fails is taken out, and what it watches was not observed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gobrrr.guarded import failed
from gobrrr.observe.live.watches.collector import CollectorWatch
from gobrrr.observe.live.watches.compiler import CompilerWatch
from gobrrr.observe.live.watches.memory import MemoryWatch
from gobrrr.observe.live.watches.observer import Observer
from gobrrr.observe.live.watches.switches import SwitchWatch
from gobrrr.observe.live.watches.threads import ThreadWatch


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
        self._tell(lambda one: one.open())

    def window_begins(self) -> None:
        """The steps without the profiler begin now."""
        self._tell(lambda one: one.window_begins())

    def step(self, index: int) -> None:
        """Step `index` of the window has ended."""
        self._tell(lambda one: one.step(index))

    def window_ends(self, steps: int) -> None:
        """The window is over, after `steps` steps."""
        self._tell(lambda one: one.window_ends(steps))

    def close(self) -> None:
        """Everything is as it was."""
        self._tell(lambda one: one.close())

    def found(self) -> dict[str, Any]:
        """The records, by the field of `Live` that they are for."""
        records: dict[str, Any] = {}

        def ask(name: str, one: Observer) -> None:
            records[name] = one.found()

        for name, one in list(self._each.items()):
            self._guard(name, one, lambda watch, name=name: ask(name, watch))  # type: ignore[misc]
        return records

    def _tell(self, what: Callable[[Observer], None]) -> None:
        for name, one in list(self._each.items()):
            self._guard(name, one, what)

    def _guard(self, name: str, one: Observer, what: Callable[[Observer], None]) -> None:
        try:
            what(one)
        except Exception as error:
            del self._each[name]
            with suppress(Exception):
                one.close()
            self.remarks.append(f"{WORDS[name]} {failed(name, error)}")


WORDS = {
    "collector": "the runs of Python's garbage collector",
    "compiled": "what the compiler did",
    "switches": "torch's settings",
    "threads": "the threads",
    "memory": "the memory",
}
