"""One arm of a trial: ways applied to a workload, entered and left many times because both arms run in turns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from gobrrr.model.workload import Workload
from gobrrr.observe.targets import Batches, step_of
from gobrrr.treatments.framework.applying import forward
from gobrrr.treatments.framework.way import TreatmentWay, error_line


class NotRestored(Exception):
    """Leaving a way failed: the workload may be changed."""


@dataclass(frozen=True)
class Entered:
    """An arm while it is entered. `layers`: the workload and what each way made of it; the last one is run."""

    call: Callable[[], Any]
    workload: Workload
    layers: tuple[Workload, ...]


class Arm:
    """A workload with ways applied to it, the smallest rank innermost."""

    def __init__(self, workload: Workload, ways: Sequence[TreatmentWay]) -> None:
        self.workload = workload
        self.ways = tuple(sorted(ways, key=lambda way: way.rank))
        self.name = " + ".join(way.name for way in self.ways) or "as it is"
        self.kept: dict[str, dict[str, Any]] = {}
        self._batches: dict[int, Batches] = {}

    @contextmanager
    def entered(self, *, fresh: bool = False, seen: Callable[[Any], None] | None = None) -> Iterator[Entered]:
        """Apply the ways, and undo them at the end, also after an exception.

        `fresh`: the loader starts again, and continues at its old place the next time. Raises what a way raises, and
        Unrestored where a way can't be undone.
        """
        stack: list[tuple[TreatmentWay, AbstractContextManager[Workload]]] = []
        layers = [self.workload]
        try:
            for way in self.ways:
                context = way.apply(layers[-1], self.kept.setdefault(way.name, {}))
                layers.append(context.__enter__())
                stack.append((way, context))
            run, arguments = step_of(layers[-1], forward, batches=self._place(layers[-1], fresh), seen=seen)
            yield Entered(lambda: run(*arguments), layers[-1], tuple(layers))
        finally:
            _leave(stack)

    def close(self) -> None:
        """Drop what the ways keep: compiled callables, captured graphs, prefetched batches."""
        self.kept.clear()
        self._batches.clear()

    def _place(self, workload: Workload, fresh: bool) -> Batches | None:
        """This arm's place in the loader, so that entering the arm again does not restart the loader's workers."""
        if workload.loader is None or fresh:
            return None
        found = self._batches.get(id(workload.loader))
        if found is None:
            found = self._batches[id(workload.loader)] = Batches(workload.loader)
        return found


def _leave(stack: list[tuple[TreatmentWay, AbstractContextManager[Workload]]]) -> None:
    """Leave all ways, the last one first, even if one fails; raises the first failure at the end."""
    caught = sys.exc_info()
    failed: tuple[TreatmentWay, BaseException] | None = None
    while stack:
        way, context = stack.pop()
        try:
            context.__exit__(*caught)
        except BaseException as error:
            if error is not caught[1] and failed is None:
                failed = (way, error)
    if failed is None:
        return
    way, cause = failed
    if not isinstance(cause, Exception):
        raise cause
    raise NotRestored(f"{way.name} could not be undone: {error_line(cause)}") from cause


def ahead(loader: Any) -> int:
    """How many batches a loader may hold ready: for so many steps the time to make a batch does not show."""
    said = getattr(loader, "ahead", None)
    if isinstance(said, int):
        return max(0, said)
    workers, each = getattr(loader, "num_workers", 0), getattr(loader, "prefetch_factor", None)
    return int(workers) * int(each or 2) if isinstance(workers, int) and workers > 0 else 0
