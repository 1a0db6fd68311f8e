"""Watches a loop step by step: warm-up, a window without the profiler, one with it, and looks at single operations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import msgspec

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.guarded import GuardedParts
from gobrrr.model.live import Live, Switches
from gobrrr.model.profile import Profile, RankProfile
from gobrrr.observe.live.assemble import assembled
from gobrrr.observe.live.clock import Clock, on_gpu, wait
from gobrrr.observe.live.early import LEAST_SURE_STEPS, Early, times_of_few, times_of_recorded
from gobrrr.observe.live.frames import current_folder
from gobrrr.observe.live.ops.dispatch import GraphBook, HeldWatch, OperationWatch, Repeats, SecondStepWatch
from gobrrr.observe.live.options import WatchOptions
from gobrrr.observe.live.recorder import Loops, ProfilerRun, profiler_cost, time_loops
from gobrrr.observe.live.turns import give_back, take
from gobrrr.observe.live.warmup import WarmUp
from gobrrr.observe.live.watches.rivals import RivalWatch, about, recording
from gobrrr.observe.live.watches.syncs import SyncWatch
from gobrrr.observe.live.watches.together import Watches

LEAD_IN = 1
"""Profiled steps that do not count: the profiler's own start falls into the first."""

WAITS, STEP_OPERATIONS, REPEATS = "the waits for the device", "the operations of a step", "work that is done again"
"""What the last three steps are looked at for, one each."""

Look = TypeVar("Look", SyncWatch, OperationWatch, SecondStepWatch)
NS_PER_S = 1e9
RECORDED_S = 0.6
"""Seconds that recording may add to the profiled steps together, which limits memory: torch keeps 8 GB of records for
each of these seconds. Fewer steps are recorded where a step has very many operations."""


class Phase(Enum):
    """What the watcher does during the current step."""

    WARMUP = "warming up"
    WINDOW = "timing without the profiler"
    PROFILE = "profiling"
    SYNCS = "looking for waits"
    DISPATCH = "counting"
    AGAIN = "comparing two steps"
    DONE = "done"


Progress = Callable[[str, int, int], None]


@dataclass
class Watcher:
    """Call `open()`, then `boundary()` between steps until `done`, and `close()` in any case.

    `profile(target)` then returns what was observed. Hooks, settings and the profiler are removed when it is done, and
    by `close()`.

    One watcher is open at a time. `steps_from`: what a step is, in words. `found_late`: "after 9 calls", where the loop
    had turns before it was found. `gives_way`: it is closed where another is to be opened. `may_end`: the loop may end
    at any step; so one step is recorded and one looked at first, which are the answer where it does.
    """

    options: WatchOptions = field(default_factory=WatchOptions)
    progress: Progress | None = None
    steps_from: str = ""
    found_late: str = ""
    gives_way: bool = False
    may_end: bool = False

    def __post_init__(self) -> None:
        self.phase = Phase.WARMUP
        self.remarks: list[str] = []
        self.graphs = GraphBook()
        self.disturbed = 0
        self._rival = RivalWatch(self._rival_begins)
        self._spoilt = False
        self.displaced = False
        self._thread: int | None = None
        self._elsewhere = 0
        self._here = current_folder()
        self._opened = False
        self._began = time.perf_counter()
        self._reset()

    @property
    def done(self) -> bool:
        """Whether everything has been observed."""
        return self.phase is Phase.DONE

    @property
    def opened(self) -> bool:
        """Whether it is open now."""
        return self._opened

    def open(self, *, displace: bool = True) -> None:
        """Put the observers in place: before the first step, and if possible before the program is loaded.

        Raises UsageError where another watcher is open that does not give way, or `displace` is False. A watcher that
        is opened again begins again, unless it is done.
        """
        if self.done or self._opened:
            return
        take(self, displace=displace)
        self._opened = True
        self.phase, self._thread, self.displaced = Phase.WARMUP, None, False
        self._reset()
        self.graphs.open()
        self._rival.open()
        self._watches.open()

    def restart(self) -> None:
        """Go back to warm-up: what was observed so far was not the loop."""
        if self.done:
            return
        self._leave()
        self.phase = Phase.WARMUP
        before = self._watches
        self._reset()
        before.close()
        self._watches.open()

    def boundary(self) -> None:
        """One step has ended and the next begins; the first call begins the first step.

        Calls from other threads than that of the first call are ignored.
        """
        if self.done or not self._opened or self._of_another_thread() or self._under_another():
            return
        self._seen += 1
        now = time.perf_counter()
        if self.phase is Phase.WARMUP:
            self._warm(now)
        elif self.phase is Phase.WINDOW:
            self._timed(now)
        elif self.phase is Phase.PROFILE:
            self._profiled(now)
        else:
            self._looked()

    def close(self) -> None:
        """Restore everything."""
        if self._opened and not self._recorded and self._early.recorder is not None:
            self._ended_early()
        self._leave()
        if self._opened:
            self._opened = False
            self._watches.close()
            self.graphs.close()
            self._rival.close()
            give_back(self)

    def profile(self, target: str, cpu: str = "cpu") -> Profile:
        """What was observed. `cpu`: the processor's name, for a step that runs on it.

        Raises UsageError where the loop ended before enough steps were observed.
        """
        self.close()
        recorder = self._recorder if self._recorded else self._early.recorder
        if recorder is None or self.displaced:
            raise UsageError(f"{target}: {self._too_little()}")
        notes: list[str] = []
        rank = recorder.read(notes)
        return self._assembled(target, recorder, rank, notes, cpu)

    # -- what is in the way

    def _too_little(self) -> str:
        if self.disturbed:
            rival = f"another of torch's profilers recorded in {self.disturbed} of the steps"
            return f"{rival}, and two can't at once: leave it out"
        if self.displaced:
            return "a watch or a diagnosis of the program's own began meanwhile, and this one gave way"
        others = f" (and {units.things(self._elsewhere, 'step')} on other threads)" if self._elsewhere else ""
        seen = units.things(self._seen, "step")
        ended = f"ended after {seen}" if not self.found_late else f"was found {self.found_late} and ended {seen} later"
        needs = f"looking takes up to {units.things(self.options.most, 'step')}"
        if self.may_end and not self._elsewhere:
            needs = f"an answer needs 2, and a sure one up to {self.options.most}"
        return f"the loop {ended}{others}, while {self.phase.value}; {needs}: let it run longer"

    def _of_another_thread(self) -> bool:
        """Whether this is another thread than the first: a profiler must be stopped from the thread that started it."""
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        self._elsewhere += thread != self._thread
        return thread != self._thread

    def _rival_begins(self) -> None:
        """A profiler of the program is about to start within a step: ours gives way."""
        if self.phase not in (Phase.WARMUP, Phase.WINDOW, Phase.PROFILE):
            return
        self._spoilt = True
        if threading.get_ident() == self._thread:
            self._early.leave()
        if self._recorder is not None and threading.get_ident() == self._thread:
            self._recorder.abandon()

    def _under_another(self) -> bool:
        """Whether another profiler records now. After it, or after a step with its start, the watcher begins again."""
        theirs = self.phase in (Phase.WARMUP, Phase.WINDOW) and not self._early.recording and recording()
        if not theirs and not self._spoilt:
            return False
        self.disturbed += 1
        self._spoilt = False
        if self.phase is not Phase.WARMUP:
            self.restart()
        self._early.drop()
        self._steps = -1
        self._warm_up.clear()
        return theirs

    # -- phases

    def _reset(self) -> None:
        self._watches, self._parts = Watches(), GuardedParts()
        self._steps, self._seen = -1, 0
        self._warm_up: WarmUp = WarmUp()
        self._clock = Clock()
        self._times: Any = None
        self._recorder: ProfilerRun | None = None
        self._recorded, self._held = False, HeldWatch(self._parts)
        self._early: Early = Early(self._rival.ours, self.graphs)
        self._ended_after = self._warmup_steps = 0
        self._profiled_steps, self._most_profiled = 0, self.options.profiled
        self._sync_watch: SyncWatch | None = None
        self._looking: OperationWatch | None = None
        self._second: SecondStepWatch | None = None
        self._loops: Loops | None = None

    def _leave(self) -> None:
        """Stop whatever is on."""
        self._early.leave()
        if self.phase is Phase.PROFILE and self._recorder is not None and not self._recorded:
            self._recorder.abandon()
            self._recorder = None
        if self.phase is Phase.SYNCS and self._sync_watch is not None:
            self._sync_watch.close()
        if self.phase is Phase.DISPATCH and self._looking is not None:
            self._looking.close()
            self._looking = None
        if self._second is not None:
            self._second.close()
            self._second = None

    def _told(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(self.phase.value, done, total)

    def _warm(self, now: float) -> None:
        wait()
        self._steps += 1
        self._told(self._steps, self.options.warmup)
        if self.may_end and not self._early.over and not self.disturbed and self.options.warmup > 0:
            self._early.boundary(about)
            if not self._early.over:
                return
        self._warm_up.mark(now, time.perf_counter(), self._watches.compiler.compiles)
        if self._steady(now):
            self._warmup_steps = self._steps
            self._begin_window()

    def _ended_early(self) -> None:
        """The loop ended before everything was measured: the answer is what was seen."""
        self._ended_after = self._seen
        if self.phase is Phase.WARMUP:
            self._warmup_steps = self._steps
        elif self.phase is Phase.WINDOW and self._window_steps:
            self._watches.window_ends(self._window_steps)
            self._times = self._clock.times()
        timed = self._times.ns if self._times is not None else ()
        if len(timed) < LEAST_SURE_STEPS:
            self._times = times_of_few([*self._warm_up.lengths_ns(), *timed])
        self._looking = self._early.looking
        self._loops = self._loops or time_loops()

    def _steady(self, now: float) -> bool:
        steps = self._steps
        late = steps > 0 and self._warm_up.lasted(now) > self.options.most_warmup_s
        if late or steps >= self.options.most_warmup:
            return True
        return steps >= self.options.warmup and self._warm_up.settled()

    def _begin_window(self) -> None:
        self._loops = time_loops()
        self.phase = Phase.WINDOW
        self._window_steps = 0
        self._told(0, self.options.window + 1)  # here, so that writing progress falls into no timed step
        self._watches.window_begins()
        wait()
        self._clock = Clock()
        self._window_began = time.perf_counter()
        self._clock.mark()

    def _timed(self, now: float) -> None:
        self._clock.mark()
        self._watches.step(self._window_steps)
        self._window_steps += 1
        self._told(self._window_steps, self.options.window + 1)
        enough = self._window_steps >= self.options.window + 1
        if enough or (self._window_steps >= 3 and now - self._window_began > self.options.window_s):
            self._times = self._clock.times()
            self._watches.window_ends(self._window_steps)
            self._steps += self._window_steps
            self._begin_profile()

    def _begin_profile(self) -> None:
        self.phase = Phase.PROFILE
        self._held.begin(self._steps, LEAD_IN)
        self._profiled_steps, self._recorder = -LEAD_IN, ProfilerRun()
        with self._rival.ours():
            self._recorder.begin()
        self._profile_began = time.perf_counter()  # loading the profiler is no recording

    def _few_enough(self, now: float) -> int:
        """How many steps to record, by what recording added to the step that does not count."""
        took = now - self._profile_began - self._times.wall_ns / NS_PER_S
        most = int(RECORDED_S / took) - 1 if took > 0 else self.options.profiled
        return max(1, min(most, self.options.profiled))

    def _profiled(self, now: float) -> None:
        assert self._recorder is not None
        self._profiled_steps += 1
        self._steps += 1
        if self._profiled_steps == 0:
            self._most_profiled = self._few_enough(now)
        late = now - self._profile_began > self.options.profiled_s and self._profiled_steps >= 1
        if self._profiled_steps < self._most_profiled and not late:
            self._recorder.mark()
            self._told(self._profiled_steps, self.options.profiled)
            return
        self._recorder.end()
        self._recorded = True
        self._early.drop()
        self._begin_look()

    def _begin_look(self) -> None:
        if not self.options.look:
            self._finish()
        elif on_gpu():
            self.phase = Phase.SYNCS
            self._sync_watch = self._look(WAITS, SyncWatch())
            if self._sync_watch is None:
                self._begin_dispatch()
        else:
            self._begin_dispatch()

    def _begin_dispatch(self) -> None:
        self.phase = Phase.DISPATCH
        self._held.boundary(self._steps)
        self._repeats = Repeats()
        self._looking = self._look(STEP_OPERATIONS, OperationWatch(self.graphs, self._repeats))
        if self._looking is None:
            self._finish()

    def _begin_again(self, first: OperationWatch) -> None:
        self.phase = Phase.AGAIN
        self._second = self._look(REPEATS, SecondStepWatch(first, self._repeats, self.graphs))
        if self._second is None:
            self._finish()

    def _look(self, part: str, look: Look) -> Look | None:
        """Open a look; None where that fails, with everything restored."""

        def opened() -> Look:
            look.open()
            return look

        found = self._parts.make(part, opened, None)
        if found is None:
            self._parts.make(part, look.close, None)
        return found

    def _looked(self) -> None:
        self._steps += 1
        if self.phase is Phase.SYNCS and self._sync_watch is not None:
            self._parts.make(WAITS, self._sync_watch.close, None)
            self._begin_dispatch()
        elif self.phase is Phase.DISPATCH and self._looking is not None:
            self._parts.make(STEP_OPERATIONS, self._looking.close, None)
            self._held.boundary(self._steps, self._looking.made)
            self._begin_again(self._looking)
        elif self._second is not None:
            self._parts.make(REPEATS, self._second.close, None)
            self._second.holds(self._held, self._steps)
            self._finish()
        self._told(1, 1)

    def _finish(self) -> None:
        self.phase = Phase.DONE
        self.close()

    # -- what was observed

    def _switched(self, found: Switches | None) -> Switches | None:
        seen = self._looking.seen if self._looking is not None else None
        return found if found is None or seen is None else msgspec.structs.replace(found, autocast=seen.autocast)

    def _assembled(self, target: str, recorder: ProfilerRun, rank: RankProfile, notes: list[str], cpu: str) -> Profile:
        watched = self._watches.found()
        seen = self._looking.seen if self._looking is not None else None
        cuda, observer = recorder.gpu, profiler_cost(self._loops, recorder.loops)
        live = Live(
            kind="cuda" if cuda else "cpu",
            times=self._times or times_of_recorded(rank.events, observer),
            warmup_steps=self._warmup_steps,
            profiled_steps=1 if self._ended_after else self._profiled_steps,
            ended_after=self._ended_after or None,
            steps_from=self.steps_from,
            compiled=watched.get("compiled"),
            syncs=self._sync_watch.found() if self._sync_watch is not None else None,
            collector=watched.get("collector"),
            switches=self._switched(watched.get("switches")),
            threads=watched.get("threads"),
            memory=watched.get("memory"),
            uses=seen.uses if seen is not None else None,
            dispatch_ns=self._loops.op_ns if self._loops else None,
            issue_ns=self._warm_up.issue_ns() if cuda else None,
            observer=observer,
            program=seen.program if seen is not None else None,
            seconds=time.perf_counter() - self._began,
        )
        found = self._looking.found() if self._looking is not None else None
        notes = [*self.remarks, *self._unread(), *notes]
        return assembled(target, rank, live, found, notes, cpu=cpu, here=self._here)

    def _unread(self) -> list[str]:
        """Notes on what could not be looked at, which is not the same as absent."""
        notes = [*self._watches.remarks, *(f"{part} {said}" for part, said in self._parts.failed.items())]
        seen = self._looking.seen if self._looking is not None else None
        if seen is not None and seen.failed:
            notes.append(f"some operations of the step {seen.failed}: they are missing")
        if seen is not None and seen.unnamed:
            notes.append(f"the program's objects {seen.unnamed}")
        if seen is not None and seen.unfollowed:
            notes.append(f"the program's loops {seen.unfollowed}")
        if seen is not None and seen.unread:
            left = units.things(seen.unread, "operation")
            notes.append(f"not looked at for casts, padding and repeated indices: {left} of the step")
        return notes
