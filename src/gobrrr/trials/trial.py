"""One trial: a way on top of those that are kept. Apply, warm up, compare the numbers, time both in turns, say so."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.model.diagnosis import Verdict
from gobrrr.model.treated import Numerics, TrialRecord
from gobrrr.model.workload import Workload
from gobrrr.observe.live.clock import on_gpu, wait
from gobrrr.observe.live.state.snapshot import Snapshot, snapshot
from gobrrr.system.reading import System
from gobrrr.treatments.framework.way import Unapplied, Way
from gobrrr.trials import numerics, pace, timing
from gobrrr.trials.arms import Arm, Unrestored, ahead
from gobrrr.trials.pace import UNDECIDED, Allowed
from gobrrr.trials.sequential import LEAST_ROUNDS

Progress = Callable[[str, int, int], None]

STEPS = 3
WARM_SHARE = 0.25
"""Of the seconds of a trial, what settling may take in each arm; compiling is not cut off."""
TIMING_SHARE, NUMERICS_SHARE = 0.5, 0.5
AHEAD_STEPS, AHEAD_BLOCKS, AHEAD_MOST = 5, pace.BLOCKS * LEAST_ROUNDS, 3.0
"""With a loader's workers: the timed steps of a block, the blocks of the fewest rounds, and how many times a trial's
seconds they may take."""
SLOW_SHARE = 1 / 30
"""A step that takes more than this of a trial's seconds is compared in few runs."""
TOLD_S = 0.05
"""Less than this before a way's steps settle is no compile time."""
STAGES = ("applying", "warming up", "comparing the numbers", "timing in turns")
COMPILING = "compiling, and warming up"


@dataclass(frozen=True)
class _Warm:
    """An arm after its warm-up."""

    step_ns: float
    extra_s: float
    peak_bytes: int | None
    settled: bool


class _Ended(Exception):
    """The trial ends here without a verdict: one line."""


def run_trial(
    workload: Workload,
    kept: Sequence[Way],
    way: Way,
    *,
    instead_of: Way | None = None,
    steps: int = STEPS,
    allowed: Allowed,
    progress: Progress | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> TrialRecord:
    """Try a way on top of those that are kept; the workload is as it was afterwards.

    `instead_of`: one of `kept`, in whose place the way is tried: what is measured is how much better than that it is.
    `steps` are compared in their numbers; `allowed` says what the trial may take (no single step is cut off, and
    compiling isn't); `clock` says ns. Raises UsageError where the workload is none. Whatever else happens is in the
    verdict.
    """
    return _Trial(workload, kept, way, instead_of, steps, allowed, progress, clock).run()


class _Trial:
    def __init__(
        self,
        workload: Workload,
        kept: Sequence[Way],
        way: Way,
        instead_of: Way | None,
        steps: int,
        allowed: Allowed,
        progress: Progress | None,
        clock: Callable[[], int],
    ) -> None:
        self._workload, self._kept, self._way = workload, tuple(kept), way
        self._steps, self._allowed, self._progress, self._clock = steps, allowed, progress, clock
        self._seconds, self._began = allowed.seconds, clock()
        self._before = Arm(workload, self._kept)
        self._after = Arm(workload, (*(one for one in self._kept if one is not instead_of), way))
        self._instead_of = instead_of.name if instead_of is not None else ""
        self._work = way.work / (instead_of.work if instead_of is not None else 1.0)
        self._found: dict[str, Any] = {}
        self._notes: list[str] = []

    def run(self) -> TrialRecord:
        """The whole trial, from the state that the workload is in to the same state."""
        with Arm(self._workload, ()).entered():  # a Workload that is none is refused before anything is copied
            pass
        original = snapshot(self._workload)
        if not original.whole:
            self._notes.append(
                "nothing of the step's state is known (no model, no reset): each arm goes on from where the other left"
            )
        self._notes += original.notes
        verdict: Verdict = "inconclusive"
        try:
            verdict, why = self._verdict(original)
        except UsageError:
            raise
        except _Ended as error:
            why = str(error)
        except Exception as error:
            why = _line(error, self._way)
            self._found["unapplied"] = isinstance(error, Unapplied)
            self._found["unfit_member"] = error.way if isinstance(error, Unapplied) else ""
        finally:
            failed = self._end(original)
        if failed:
            verdict, why = "inconclusive", f"{why}; {failed}"
        return TrialRecord(
            way=self._way.name,
            treatment=self._way.treatment,
            kept=tuple(way.name for way in self._kept),
            verdict=verdict,
            why=why,
            instead_of=self._instead_of,
            work=self._work,
            seconds=self._spent,
            notes=tuple(self._notes),
            **self._found,
        )

    def _verdict(self, original: Snapshot) -> tuple[Verdict, str]:
        self._told(0)
        with Arm(self._workload, ()).entered() as plain:
            for _ in range(self._allowed.plain):
                _first(plain.call)
        wait()
        original.restore_random()
        state = snapshot(self._workload)
        self._told(1)
        if self._way.work != 1.0:
            self._alone(state)
        first, second = self._warm(state)
        self._time_to_decide(first.step_ns / 1e9, second.step_ns / 1e9)
        self._told(2)
        found = self._compared(state, max(first.step_ns, second.step_ns) / 1e9)
        self._found["numerics"] = found
        if found.ok is False:
            return "unsafe", found.why
        if found.ok is None and self._way.numerics != "none":
            return "inconclusive", f"the numbers can't be compared: {found.why}"
        return self._timed(state, first, second, found)

    def _compared(self, state: Snapshot, slower: float) -> Numerics:
        """What the way does to the numbers, in few runs where a step takes `slower` seconds and that is long."""
        most = min(NUMERICS_SHARE * self._seconds, self._left - pace.timed_s(slower))
        fitting = max(2, int(most / pace.NUMERICS_RUNS / slower))
        few = slower > min(SLOW_SHARE * self._seconds, pace.SLOW_S) or fitting < self._steps
        steps = min(self._steps, fitting, *([pace.FEW_STEPS] if few else []))
        return numerics.compare(
            self._workload, self._before, self._after, self._way, state, steps=steps, few=few, most_s=max(most, 0.0)
        )

    @property
    def _spent(self) -> float:
        return (self._clock() - self._began) / 1e9

    @property
    def _left(self) -> float:
        return self._allowed.within_s - self._spent

    def _time_to_decide(self, first_s: float, second_s: float) -> None:
        """End the trial where there is no time for what comes next, of steps of so many seconds in each arm."""
        needs = pace.decided_s(first_s, second_s)
        if needs > self._left:
            steps = f"a step takes {units.duration(1e9 * first_s)}, {units.duration(1e9 * second_s)} with it"
            left = f"{max(self._left, 0.0):.0f} s were left"
            raise self._late(f"{steps}, and comparing and timing them at least {needs:.0f} s: {left}")

    def _late(self, why: str) -> _Ended:
        self._found["late"] = True
        return _Ended(f"{UNDECIDED}: {why}")

    def _alone(self, state: Snapshot) -> None:
        """One step with the way and nothing else, before anything is compiled for it.

        Raises Unapplied where the step does not take what the way gives it: it writes it into a cache of its own, or
        has a weight for each row. Memory that is short now may suffice with what is kept.
        """
        try:
            with Arm(self._workload, (self._way,)).entered() as entered:
                entered.call()
            wait()
        except (Unrestored, Unapplied):
            raise
        except Exception as error:
            if not out_of_memory(error):
                raise Unapplied(f"the step fails with it: {_first_line(error)}") from error
        state.restore()

    def _warm(self, state: Snapshot) -> tuple[_Warm, _Warm]:
        """Both arms' first steps, the one as it is first: what the process does once is not the way's."""
        held = _allocated()
        first = self._warmed(self._before, state, state.device_bytes)
        ours = _allocated() - held
        second = self._warmed(self._after, state, state.device_bytes + max(0, ours))
        self._found["memory_before_bytes"], self._found["memory_after_bytes"] = first.peak_bytes, second.peak_bytes
        if self._way.compiles or second.extra_s > TOLD_S:
            self._found["compile_s"] = second.extra_s
        self._found["recompiles_stopped"] = second.settled
        return first, second

    def _warmed(self, arm: Arm, state: Snapshot, foreign_bytes: int) -> _Warm:
        """Enter an arm for the first time. `foreign_bytes` of the device's memory are not its own."""
        state.restore()
        compiles = any(way.compiles for way in arm.ways)
        if compiles and self._progress is not None:
            self._progress(f"{self._way.name}: {COMPILING}", 1, len(STAGES))
        begin = self._clock()
        with arm.entered() as entered:
            applied_s = (self._clock() - begin) / 1e9
            warmth = timing.warm_up(
                entered.call, seconds=WARM_SHARE * self._seconds, most_s=self._left, alike=self._allowed.alike,
                least=self._allowed.warm(compiles=compiles), compiling=compiled, clock=self._clock,
            )  # fmt: skip
            if self._left < 0:
                raise self._late(f"after {self._spent:.0f} s its first steps had not settled")
            peak = _peak(entered.call)
        own = None if peak is None else max(0, peak - foreign_bytes)
        return _Warm(warmth.step_ns, warmth.extra_s + applied_s, own, warmth.settled)

    def _timed(self, state: Snapshot, first: _Warm, second: _Warm, found: Numerics) -> tuple[Verdict, str]:
        count = compiled()
        state.restore()
        slower = max(first.step_ns, second.step_ns)
        ahead = max(_ahead(self._before), _ahead(self._after))
        idle = 1 + ahead if ahead else pace.idle(slower / 1e9)
        seconds = TIMING_SHARE * self._seconds
        if ahead:  # batches that were made ahead of a block: it takes longer by theirs
            seconds = min(AHEAD_MOST * seconds, max(seconds, (idle + AHEAD_STEPS) * AHEAD_BLOCKS * slower / 1e9))
        cheap = state.seconds * 1e9 <= timing.block_steps(slower, seconds) * slower

        def prepare() -> None:
            if cheap:
                state.restore()
            elif self._workload.reset is not None:
                self._workload.reset()

        system = System()
        began = system.reading()
        compared = timing.compare(
            _side(self._before),
            _side(self._after),
            step_ns=slower,
            seconds=min(seconds, self._left),
            most_s=max(self._left, 0.0),
            work=self._work,
            idle=idle,
            patient=self._allowed.patient,
            prepare=prepare,
            clock=self._clock,
            progress=self._progress,
        )
        self._found["timing"], self._found["contention"] = compared.timing, system.since(began)
        again = compiled() - count
        self._found["recompiles_stopped"] = again == 0
        if again:
            return "inconclusive", f"it did not settle: {units.things(again, 'compilation')} while it was timed"
        self._found["late"] = compared.timing.rounds < LEAST_ROUNDS
        saving = compared.timing.before_ns - compared.timing.after_ns / self._work
        compile_s = self._found.get("compile_s")
        if compared.verdict == "helped" and compile_s is not None:
            self._found["break_even_steps"] = compile_s * 1e9 / saving
        return compared.verdict, _with_numbers(compared.why, found)

    def _end(self, original: Snapshot) -> str:
        """Put everything back, and say what could not be."""
        self._before.close()
        self._after.close()
        try:
            original.restore()
        except Exception as error:
            return f"the workload could not be put back and may be changed: {_first_line(error)}"
        finally:
            if on_gpu():
                torch.cuda.empty_cache()
        return ""

    def _told(self, stage: int) -> None:
        if self._progress is not None:
            self._progress(f"{self._way.name}: {STAGES[stage]}", stage, len(STAGES))


def _first(call: Callable[[], Any]) -> None:
    """A step of the workload as it is: what it raises is no matter of the way's."""
    try:
        call()
    except UsageError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise _Ended(f"out of memory in the step as it is: {_first_line(error)}") from error
        raise _Ended(f"the step as it is fails: {_first_line(error)}") from error


def _side(arm: Arm) -> timing.Side:
    @contextmanager
    def entering() -> Any:
        with arm.entered() as entered:
            yield entered.call

    side: Callable[[], AbstractContextManager[Callable[[], Any]]] = entering
    return side


def _ahead(arm: Arm) -> int:
    with arm.entered() as entered:
        return 0 if entered.workload.loader is None else ahead(entered.workload.loader)


def _with_numbers(why: str, found: Numerics) -> str:
    if found.ok is None:
        return f"{why}; its numbers were not compared: {found.why}"
    return f"{why}; {found.why}" if found.why else why


def _peak(call: Callable[[], Any]) -> int | None:
    """The most memory that one step holds on the device, in bytes; None on a CPU, whose allocator does not say."""
    if not on_gpu():
        return None
    wait()
    torch.cuda.reset_peak_memory_stats()
    call()
    wait()
    return int(torch.cuda.max_memory_allocated())


def _allocated() -> int:
    return int(torch.cuda.memory_allocated()) if on_gpu() else 0


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, the device's or the host's."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def _line(error: Exception, way: Way) -> str:
    """Why a trial ended in an error."""
    if isinstance(error, Unrestored):
        return f"{error}; the workload may be changed"
    if out_of_memory(error):
        return f"out of memory with {way.name}: {_first_line(error)}"
    if isinstance(error, Unapplied):
        return f"{way.name} can't be applied: {error}"
    return f"{way.name} failed: {_first_line(error)}"


_WITHIN = re.compile(r"^\s*Explanation: .*\bgot (\w+)\((['\"])(.+)\2\)", re.MULTILINE)
_FAILED_RUNNING = re.compile(r"\AFailed running [^\n]*:\n([^\n]+)")
"""Where torch's compiler says which error of the program it ran into, since torch 2.8 and before: its first line says
only what it was doing."""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    within, before = _WITHIN.search(text), _FAILED_RUNNING.search(text)
    if within is not None:
        return f"{within[1]}: {within[3]}"
    first = before[1] if before is not None else (text.splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def compiled() -> int:
    """The frames that torch's compiler was given so far in this process; 0 where it was never loaded."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0
    frames = utils.counters["frames"]
    return int(frames["total"])
