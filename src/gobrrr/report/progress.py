"""A progress bar for long reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0
"""A shorter read shows no bar."""


class ReadProgress:
    """Call it with the bytes read so far and their total (None: not known); use it as a context manager.

    It shows nothing before `patience_s` have passed, and nothing at all if `console` is not a terminal.
    """

    def __init__(
        self,
        label: str,
        console: Console,
        *,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._console = console
        self._patience_s = patience_s
        self._clock = clock
        self._started_s = clock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ReadProgress:
        self._started_s = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        """Show how far the read is."""
        if not self._console.is_terminal or self._clock() - self._started_s < self._patience_s:
            return
        bar, task = self._shown()
        bar.update(task, completed=done_bytes, total=total_bytes)

    def _shown(self) -> tuple[Progress, TaskID]:
        if self._bar is None or self._task is None:
            from rich.markup import escape
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(escape(self._label), total=None)
            self._bar.start()
        return self._bar, self._task
