"""A progress bar for work with named stages."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class StageProgress:
    """Call it with the stage's name, how many are done and how many there are; use it as a context manager.

    It shows nothing if `console` is not a terminal.
    """

    def __init__(self, label: str, console: Console) -> None:
        self._label = label
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> StageProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show which stage runs."""
        if not self._console.is_terminal:
            return
        if self._bar is None or self._task is None:
            self._start(total)
        assert self._bar is not None
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total, description=f"{self._label}: {stage}")

    def _start(self, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(self._label, total=total)
        self._bar.start()
