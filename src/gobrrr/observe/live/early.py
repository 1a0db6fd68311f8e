"""Two steps that are looked at before all else, for a loop that ends before the rest was measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from gobrrr.guarded import Parts
from gobrrr.model.events import EventTable, Kind
from gobrrr.model.live import ProfilerCost, StepTimes
from gobrrr.model.tree import STEP_MARK
from gobrrr.observe.live.clock import step_times
from gobrrr.observe.live.ops.dispatch import GraphBook, Looking
from gobrrr.observe.live.recorder import Recorder
from gobrrr.observe.live.warmup import STEADY

SURE = 3
"""Timed steps whose extremes are taken as they are. Of fewer nothing says how much they vary."""
SLOWED = 3.0
"""The profiler makes a step at most this much longer: two- to threefold on real traces (docs/design.md)."""


class Early:
    """`boundary()` at the begin of the first step, which is recorded, of the second, whose operations are looked at,
    and at its end. `recorder` and `looking` hold what was seen from then on.

    `ours()` says to those who listen for profilers that the one which starts in its block is our own.
    """

    def __init__(self, ours: Callable[[], AbstractContextManager[None]], graphs: GraphBook) -> None:
        self.recorder: Recorder | None = None
        self.looking: Looking | None = None
        self.over = False
        self._ours, self._graphs = ours, graphs
        self._recording: Recorder | None = None
        self._look: Looking | None = None
        self._parts = Parts()

    @property
    def recording(self) -> bool:
        """Whether a step is being recorded now."""
        return self._recording is not None

    def boundary(self, held: Callable[[], bool]) -> None:
        """A step ends, the next begins. `held()`: a profiler of the program's own may start; then nothing is done."""
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
            self._recording = Recorder()
            with self._ours():
                self._recording.begin()
            self._recording.mark()

    def leave(self) -> None:
        """What is not finished is dropped."""
        if self._recording is not None:
            self._recording.abandon()
        if self._look is not None:
            self._parts.make("look", self._look.close, None)
        self._recording = self._look = None

    def drop(self) -> None:
        """All is dropped: it begins again, or it is not needed any more."""
        self.leave()
        self.recorder = self.looking = None
        self.over = False

    def _opened(self) -> Looking:
        look = Looking(self._graphs)
        look.open()
        return look


def times_of_few(ns: list[float]) -> StepTimes | None:
    """The record of steps that were timed while warming up; None for none.

    Under SURE of them, the interval reaches as far beyond them as steps may differ that count as steady.
    """
    if not ns:
        return None
    low, high = (1 / STEADY, STEADY) if len(ns) < SURE else (1.0, 1.0)
    return step_times(ns, low=low * min(ns), high=high * max(ns))


def times_of_recorded(events: EventTable, cost: ProfilerCost | None) -> StepTimes:
    """The record where no step was timed: what the recorded one took, less recording it; others differ as above."""
    marks = events.of(Kind.ANNOTATION)
    most = float(max(events.duration_ns[at] for at in marks if events.names[events.name[at]].startswith(STEP_MARK)))
    added = 0.0
    if cost is not None:
        added = cost.op_ns * len(events.of(Kind.OP)) + cost.python_ns * len(events.of(Kind.PYTHON))
    least = max(most - added, most / SLOWED)
    return StepTimes(wall_ns=least, low_ns=least / STEADY, high_ns=most * STEADY, ns=(), median_ns=least, mean_ns=least)
