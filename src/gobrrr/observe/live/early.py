"""Two steps that are recorded before anything else, for a loop that ends before the rest is measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from gobrrr.guarded import GuardedParts
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.live import ProfilerCost, StepTimes
from gobrrr.model.tree import STEP_MARK
from gobrrr.observe.live.clock import step_times
from gobrrr.observe.live.ops.dispatch import GraphBook, OperationWatch
from gobrrr.observe.live.recorder import ProfilerRun
from gobrrr.observe.live.warmup import STEADY_FACTOR

LEAST_SURE_STEPS = 3
"""Timed steps whose extremes are their interval; fewer do not show how much steps vary. Chosen."""
MOST_SLOWDOWN = 3.0
"""How many times longer the profiler makes a step at most: two- to threefold on real traces (docs/design.md)."""


class Early:
    """Records the first step with the profiler, and the second operation by operation.

    Call `boundary()` at the start of the first step, of the second, and at its end. `recorder` and `looking` hold what
    was seen. A profiler that starts within `ours()` is known as our own.
    """

    def __init__(self, ours: Callable[[], AbstractContextManager[None]], graphs: GraphBook) -> None:
        self.recorder: ProfilerRun | None = None
        self.looking: OperationWatch | None = None
        self.over = False
        self._ours, self._graphs = ours, graphs
        self._recording: ProfilerRun | None = None
        self._look: OperationWatch | None = None
        self._parts = GuardedParts()

    @property
    def recording(self) -> bool:
        """Whether a step is being recorded now."""
        return self._recording is not None

    def boundary(self, held: Callable[[], bool]) -> None:
        """A step ends, the next begins. Nothing is done where `held()`: a profiler of the program may start."""
        if self._recording is not None:
            self._recording.end()
            self.recorder, self._recording = self._recording, None
            self._look = self._parts.make("look", self._opened, None)
            self.over = self._look is None
        elif self._look is not None:
            self._parts.make("look", self._look.close, None)
            self.looking, self._look, self.over = self._look, None, True
        elif held():
            self.over = True
        else:
            self._recording = ProfilerRun()
            with self._ours():
                self._recording.begin()
            self._recording.mark()

    def leave(self) -> None:
        """Stop, and drop what is not finished."""
        if self._recording is not None:
            self._recording.abandon()
        if self._look is not None:
            self._parts.make("look", self._look.close, None)
        self._recording = self._look = None

    def drop(self) -> None:
        """Drop everything: it begins again, or is not needed any more."""
        self.leave()
        self.recorder = self.looking = None
        self.over = False

    def _opened(self) -> OperationWatch:
        look = OperationWatch(self._graphs)
        try:
            look.open()
        except BaseException:
            look.close()  # what was opened is put back
            raise
        return look


def times_of_few(ns: list[float]) -> StepTimes | None:
    """The record of steps that were timed during warm-up; None for none.

    For fewer than SURE, the interval is widened by STEADY, the factor by which steady steps may differ.
    """
    if not ns:
        return None
    low, high = (1 / STEADY_FACTOR, STEADY_FACTOR) if len(ns) < LEAST_SURE_STEPS else (1.0, 1.0)
    return step_times(ns, low=low * min(ns), high=high * max(ns))


def times_of_recorded(events: EventTable, cost: ProfilerCost | None) -> StepTimes:
    """The record where no step was timed: the time of the recorded step, less the cost of recording, widened too."""
    marks = events.of(EventKind.ANNOTATION)
    most = float(max(events.duration_ns[at] for at in marks if events.names[events.name[at]].startswith(STEP_MARK)))
    added = 0.0
    if cost is not None:
        added = cost.op_ns * len(events.of(EventKind.OP)) + cost.python_ns * len(events.of(EventKind.PYTHON))
    least = max(most - added, most / MOST_SLOWDOWN)
    return StepTimes(
        wall_ns=least, low_ns=least / STEADY_FACTOR, high_ns=most * STEADY_FACTOR, ns=(), median_ns=least, mean_ns=least
    )
