"""One trial of a way on top of the kept ones: apply it, warm up, compare the numbers, and time both arms in turns."""

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
from gobrrr.treatments.framework.way import NotApplicable, TreatmentWay
from gobrrr.trials import numerics, pace, timing
from gobrrr.trials.arms import Arm, NotRestored, ahead
from gobrrr.trials.pace import UNDECIDED, Stages, TrialTime
from gobrrr.trials.sequential import LEAST_DECIDING_ROUNDS

COMPARED_STEPS = 3
"""Steps whose numbers are compared. Chosen, not measured."""
WARM_SHARE = 0.25
"""The share of a trial's seconds that warming up may take in each arm; compiling is not cut off. Chosen."""
TIMING_SHARE, NUMERICS_SHARE = 0.5, 0.5
"""The shares of a trial's seconds for timing, and for comparing the numbers at most. Chosen, not measured."""
AHEAD_STEPS, AHEAD_BLOCKS, AHEAD_MOST = 5, pace.BLOCKS * LEAST_DECIDING_ROUNDS, 3.0
"""For a loader with workers: the timed steps of a block, the blocks of the fewest rounds, and how many times a trial's
seconds for timing they may take."""
SLOW_SHARE = 1 / 30
"""The numbers of a step that takes a larger share of a trial's seconds are compared in few runs. Chosen."""
LEAST_COMPILE_S = 0.05
"""A shorter warm-up is not reported as compile time. Chosen, not measured."""
STAGES = ("applying", "warming up", "comparing the numbers", "timing in turns")
COMPILING_STAGE = "compiling, and warming up"
"""The stages of a trial in its progress."""


@dataclass(frozen=True)
class _Warm:
    """An arm after its warm-up."""

    step_ns: float
    extra_s: float
    peak_bytes: int | None
    settled: bool


class _Ended(Exception):
    """The trial ends without a verdict: one line says why."""


def run_trial(
    workload: Workload,
    kept: Sequence[TreatmentWay],
    way: TreatmentWay,
    *,
    instead_of: TreatmentWay | None = None,
    steps: int = COMPARED_STEPS,
    allowed: TrialTime,
    progress: Stages | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> TrialRecord:
    """Try a way on top of the kept ones, and restore the workload.

    `instead_of`: one of `kept` that the way replaces: the trial then measures how much better than that the way is.
    `steps`: steps whose numbers are compared. `allowed`: the time for the trial (a single step and compiling are not
    cut off). `clock` returns ns. Raises UsageError where the workload can't be run; the verdict covers everything else.
    """
    return _Trial(workload, kept, way, instead_of, steps, allowed, progress, clock).run()


class _Trial:
    def __init__(
        self,
        workload: Workload,
        kept: Sequence[TreatmentWay],
        way: TreatmentWay,
        instead_of: TreatmentWay | None,
        steps: int,
        allowed: TrialTime,
        progress: Stages | None,
        clock: Callable[[], int],
    ) -> None:
        self._workload, self._kept, self._way = workload, tuple(kept), way
        self._steps, self._allowed, self._progress, self._clock = steps, allowed, progress, clock
        self._seconds, self._began = allowed.seconds, clock()
        self._before = Arm(workload, self._kept)
        self._after = Arm(workload, (*(kept_way for kept_way in self._kept if kept_way is not instead_of), way))
        self._instead_of = instead_of.name if instead_of is not None else ""
        self._work = way.work / (instead_of.work if instead_of is not None else 1.0)
        self._found: dict[str, Any] = {}
        self._notes: list[str] = []

    def run(self) -> TrialRecord:
        """Run the whole trial; the workload ends in the state in which it began."""
        with Arm(self._workload, ()).entered():  # refuses a wrong Workload before anything is copied
            pass
        original = snapshot(self._workload)
        if not original.whole:
            self._notes.append(
                "the step's state is not known (no model, no reset): each arm continues where the other one stopped"
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
            self._found["unapplied"] = isinstance(error, NotApplicable)
            self._found["unfit_member"] = error.way if isinstance(error, NotApplicable) else ""
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
        """Compare the numbers, in few runs where a step of `slower` seconds is slow."""
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
        """End the trial where there is no time to compare and time steps of so many seconds in each arm."""
        needs = pace.decided_s(first_s, second_s)
        if needs > self._left:
            steps = f"a step takes {units.duration(1e9 * first_s)}, {units.duration(1e9 * second_s)} with it"
            left = f"{max(self._left, 0.0):.0f} s were left"
            raise self._late(f"{steps}, and comparing and timing them at least {needs:.0f} s: {left}")

    def _late(self, why: str) -> _Ended:
        self._found["late"] = True
        return _Ended(f"{UNDECIDED}: {why}")

    def _alone(self, state: Snapshot) -> None:
        """Run one step with only this way, before anything is compiled.

        Raises Unapplied where the step fails with the way's inputs: it writes them into a cache of fixed size, for
        example, or has a weight for each row. Out of memory is ignored here: with the kept ways memory may suffice.
        """
        try:
            with Arm(self._workload, (self._way,)).entered() as entered:
                entered.call()
            wait()
        except (NotRestored, NotApplicable):
            raise
        except Exception as error:
            if not out_of_memory(error):
                raise NotApplicable(f"the step fails with it: {_first_line(error)}") from error
        state.restore()

    def _warm(self, state: Snapshot) -> tuple[_Warm, _Warm]:
        """Warm up both arms, the original one first, so that one-time work of the process does not count for the
        way."""
        held = _allocated()
        first = self._warmed(self._before, state, state.device_bytes)
        ours = _allocated() - held
        second = self._warmed(self._after, state, state.device_bytes + max(0, ours))
        self._found["memory_before_bytes"], self._found["memory_after_bytes"] = first.peak_bytes, second.peak_bytes
        if self._way.compiles or second.extra_s > LEAST_COMPILE_S:
            self._found["compile_s"] = second.extra_s
        self._found["recompiles_stopped"] = second.settled
        return first, second

    def _warmed(self, arm: Arm, state: Snapshot, foreign_bytes: int) -> _Warm:
        """Enter an arm for the first time. `foreign_bytes`: device memory that is not the arm's own."""
        state.restore()
        compiles = any(way.compiles for way in arm.ways)
        if compiles and self._progress is not None:
            self._progress(f"{self._way.name}: {COMPILING_STAGE}", 1, len(STAGES))
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
        if ahead:  # a block takes longer by the batches that were prefetched before it
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
            return "inconclusive", f"it kept compiling: {units.things(again, 'compilation')} while it was timed"
        self._found["late"] = compared.timing.rounds < LEAST_DECIDING_ROUNDS
        saving = compared.timing.before_ns - compared.timing.after_ns / self._work
        compile_s = self._found.get("compile_s")
        if compared.verdict == "helped" and compile_s is not None:
            self._found["break_even_steps"] = compile_s * 1e9 / saving
        return compared.verdict, _with_numbers(compared.why, found)

    def _end(self, original: Snapshot) -> str:
        """Restore everything; returns what could not be restored, or ""."""
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
    """Run a step of the original workload, whose errors are not caused by the way."""
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
    """The peak device memory of one step, in bytes; None on a CPU, whose allocator does not count it."""
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
    """Whether an error means that device or host memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def _line(error: Exception, way: TreatmentWay) -> str:
    """Why a trial ended in an error."""
    if isinstance(error, NotRestored):
        return f"{error}; the workload may be changed"
    if out_of_memory(error):
        return f"out of memory with {way.name}: {_first_line(error)}"
    if isinstance(error, NotApplicable):
        return f"{way.name} can't be applied: {error}"
    return f"{way.name} failed: {_first_line(error)}"


_WITHIN = re.compile(r"^\s*Explanation: .*\bgot (\w+)\((['\"])(.+)\2\)", re.MULTILINE)
_FAILED_RUNNING = re.compile(r"\AFailed running [^\n]*:\n([^\n]+)")
"""Find the program's own error in an error of torch's compiler, since torch 2.8 and before that: the first line only
says what the compiler was doing."""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    within, before = _WITHIN.search(text), _FAILED_RUNNING.search(text)
    if within is not None:
        return f"{within[1]}: {within[3]}"
    first = before[1] if before is not None else (text.splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def compiled() -> int:
    """How many frames torch's compiler has compiled in this process; 0 where it was never loaded."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0
    frames = utils.counters["frames"]
    return int(frames["total"])
