"""Starts watching at the moment when the program itself imports torch.

torch reads some settings (OMP_NUM_THREADS, TORCH_LOGS, ...) from the environment while it is imported, and scripts set
them in their first lines. Importing torch before the script begins would change what the script does.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Protocol


class ProgramWatcher(Protocol):
    """What watches a program while it runs."""

    stop_after: bool

    def open(self) -> None:
        """Before the program begins."""

    def close(self) -> None:
        """Restore everything."""

    def found(self) -> Any:
        """What it found: a record, or None."""


class WhenTorchArrives:
    """An Eye that makes and opens another when the program has imported torch.

    `make()` may import torch. `eye` is what it made; None while torch is not imported.
    """

    def __init__(self, make: Callable[[], ProgramWatcher]) -> None:
        self.eye: ProgramWatcher | None = None
        self.stop_after = False
        self._make = make
        self._waiting = False

    def open(self) -> None:
        """Wait for torch, or begin at once where it is imported already."""
        if "torch" in sys.modules:
            self._begin()
        else:
            self._waiting = True
            sys.meta_path.insert(0, self)

    def close(self) -> None:
        """Stop waiting; close what was opened."""
        self._stop_waiting()
        if self.eye is not None:
            self.eye.close()

    def found(self) -> Any:
        """What the eye found; None where torch never came."""
        return self.eye.found() if self.eye is not None else None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by the import system: for torch, its own loader, changed so that we begin when it has loaded torch."""
        if name != "torch" or not self._waiting:
            return None
        self._stop_waiting()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            original(module)
            self._begin()

        loader.exec_module = exec_module

    def _stop_waiting(self) -> None:
        self._waiting = False
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _begin(self) -> None:
        self.eye = self._make()
        self.eye.stop_after = self.stop_after
        self.eye.open()
