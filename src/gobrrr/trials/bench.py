"""Diagnoses a workload in this process with ways applied to it, and runs trials. Needs torch."""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import msgspec

from gobrrr.analysis.replay.predictive import predicted
from gobrrr.doors import live, pipeline
from gobrrr.errors import UsageError
from gobrrr.hardware.measure.device import find_device
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.treated import TrialRecord, Untried, Versions
from gobrrr.model.workload import Workload
from gobrrr.observe.live.clock import on_gpu
from gobrrr.observe.live.state.snapshot import snapshot
from gobrrr.observe.targets import check_arguments, find_callable
from gobrrr.treatments.framework.way import NotApplicable, TreatmentWay
from gobrrr.trials.arms import Arm
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.candidates import (
    Basis,
    Predictor,
    StepOverview,
    advice_of,
    candidates_of,
    hides,
    predictor_of,
    step_of,
    ways_of,
)
from gobrrr.trials.completing import completed
from gobrrr.trials.fingerprint import fingerprint
from gobrrr.trials.looking import PROFILED_S, WINDOW_S, DiagnosisProgress
from gobrrr.trials.pace import Stages, TrialTime
from gobrrr.trials.search import TOGETHER
from gobrrr.trials.trial import run_trial

NEEDS_PROCESS = "needs a process of its own: name the step, as file.py:name"
NOT_PUT_BACK = (
    "gobrrr called the callable in this process and found no model, optimizer or tensor that it reaches: what the call "
    "changed was not put back"
)
UNMEASURED = (
    f"this CPU's peak speed is not known, and the budget is too short for the {live.CALIBRATION_LIMIT_S:.0f} s that "
    "measuring it takes: gobrrr machine measures it once, and makes the predictions better"
)
FORWARD_ALONE = "an optimizer without loss or step is not used: only the forward pass was treated"


class LocalRunner:
    """Runs the steps in this process. `alone`: the process runs nothing else, and can be replaced by a new one.

    `clock` returns ns.
    """

    renews = False
    start_s, down = 0.0, False

    def __init__(
        self, workload: Workload, target: str, *, alone: bool, stages: Stages | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:  # fmt: skip
        workload, found = completed(workload)
        self._workload, self._target, self._stages, self._clock = workload, target, stages, clock
        self._fingerprint = fingerprint(workload)
        fit, unfit = ways_of(workload)
        self._ways = {way.name: way for way in fit if alone or not way.fresh}
        left = [Untried(way=way.name, why=NEEDS_PROCESS) for way in fit if way.name not in self._ways]
        self._unfit = (*left, *(Untried(way=rejected.name, why=rejected.why) for rejected in unfit))
        self._versions: Versions | None = None
        self._basis: Basis | None = None
        self._predictor: Predictor | None = None
        self._seen: Diagnosis | None = None
        self._notes: list[str] = found

    def look(self, kept: Sequence[str], within_s: float = math.inf, spent_s: float = 0.0) -> StepOverview:
        """Diagnose the step with the kept ways, and restore the workload. Exceptions of the step pass through.

        With less time it observes fewer steps. Raises UsageError where the time is too short.
        """
        begin = self._clock()
        once_s = live.CALIBRATION_LIMIT_S if not on_gpu() and not live.is_measured() else 0.0
        looking = DiagnosisProgress(
            self._stages, within_s, spent_s, first=not kept, once_s=once_s, clock=lambda: self._clock() / 1e9
        )
        ways = list(self._ways.values())
        if kept and self._basis is None:  # this process has not seen the step as it was
            plain = self._examined((), looking)
            self._basis, self._seen = Basis(plain, ways), plain.diagnosis
        examined = self._examined(kept, looking)
        self._predictor = predictor_of(examined, ways)
        if self._basis is None:
            self._basis = Basis(examined, ways, self._predictor)
        if self._seen is None or not any(hides(way) for way in self._named(kept)):
            self._seen = examined.diagnosis
        found, notes = candidates_of(
            examined, ways, self._named(kept), self._basis if kept else None, self._seen, self._predictor
        )
        if self._workload.optimizer is not None and self._workload.loss is None and self._workload.step is None:
            notes = [*notes, FORWARD_ALONE]
        notes = [*notes, *self._notes]
        if self._versions is None:
            self._versions = _versions(examined.diagnosis.version)
        return StepOverview(
            diagnosis=examined.diagnosis,
            step_ns=step_of(examined.diagnosis),
            candidates=tuple(found),
            sets=tuple(self._basis.sets(found)) if not kept else (),
            unfit=self._unfit,
            advice=tuple(advice_of(examined.diagnosis, ways)),
            fingerprint=self._fingerprint,
            versions=self._versions,
            notes=tuple(notes),
            seconds=(self._clock() - begin) / 1e9 - looking.measuring_s,
            once_s=once_s if UNMEASURED in self._notes else 0.0,
        )

    def _examined(self, kept: Sequence[str], looking: DiagnosisProgress) -> pipeline.Examined:
        """Run, profile and examine the step with the kept ways."""
        arm = Arm(self._workload, self._named(kept))
        before = snapshot(self._workload)
        try:
            with arm.entered() as entered:
                profile = live.profile_of(
                    entered.workload, (), {}, put_back=False, stages=looking, options=_windows(looking)
                )
        finally:
            arm.close()
            before.restore()
        profile = dataclasses.replace(profile, target=self._target)
        with looking.once() as affordable:
            if affordable:
                profile = live.ready(profile, None, self._stages)
            elif live.computes_on_host(profile) and not live.is_measured():
                self._notes = list(dict.fromkeys([*self._notes, UNMEASURED]))
        if self._stages is not None:
            self._stages("predicting", 0, 1)
        return pipeline.examine(profile)

    def trial(self, kept: Sequence[str], way: Candidate, allowed: TrialTime, instead_of: str = "") -> TrialRecord:
        """One trial of a way, or of several at once, on top of the kept ways or in place of one of them.

        A candidate that leaves a way out is tried in place of that way.
        """
        rival = self._ways[instead_of] if instead_of else None
        record = run_trial(
            self._workload, self._named(kept), self._way_of(way), instead_of=rival, allowed=allowed,
            progress=self._stages, clock=self._clock,
        )  # fmt: skip
        record = msgspec.structs.replace(
            record, treatment=way.treatment, members=way.members, leaves_out=way.leaves_out
        )
        hidden = any(hides(kept_way) for kept_way in self._named(kept))
        return record if instead_of or hidden else self._as_timed(record, way)

    def _as_timed(self, record: TrialRecord, way: Candidate) -> TrialRecord:
        """The trial with its prediction for the step's time during the trial: the host may be faster or slower by
        then."""
        if record.timing is None or self._predictor is None or way.expected_ns is None:
            return record
        step = record.timing.before_ns
        found = self._predictor.replayed(way.as_if, step)
        if found is None:
            return record
        expected, low, high = (step * part for part in predicted(found))
        return msgspec.structs.replace(
            record, step_ns=step, replayed_expected_ns=expected, replayed_saving_ns=(low, high)
        )  # fmt: skip

    def together(self, kept: Sequence[str], allowed: TrialTime) -> TrialRecord:
        """One trial of all kept ways at once, against the step as it was."""
        whole = stacked(self._named(kept))
        return run_trial(self._workload, (), whole, allowed=allowed, progress=self._stages, clock=self._clock)

    def _way_of(self, candidate: Candidate) -> TreatmentWay:
        if candidate.leaves_out:
            return nothing(candidate.way)
        if candidate.members:
            return dataclasses.replace(stacked(self._named(candidate.members)), name=candidate.way)
        return self._ways[candidate.way]

    def _named(self, names: Sequence[str]) -> list[TreatmentWay]:
        return [self._ways[name] for name in names]


def _windows(looking: DiagnosisProgress) -> Any:
    """WatchOptions for how many steps are observed: few where steps are slow."""
    from gobrrr.observe.live.options import WatchOptions

    most = min(WatchOptions.most_warmup_s, looking.warmup_s)
    return WatchOptions(most_warmup_s=most, window_s=WINDOW_S, profiled_s=PROFILED_S)


def stacked(ways: Sequence[TreatmentWay]) -> TreatmentWay:
    """Several ways as a single one."""
    inwards = sorted(ways, key=lambda way: way.rank)

    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        with ExitStack() as stack:
            for way in inwards:
                try:
                    workload = stack.enter_context(way.apply(workload, kept.setdefault(way.name, {})))
                except NotApplicable as error:
                    error.way = error.way or way.name
                    raise
            yield workload

    worst = max((way.numerics for way in ways), key=("none", "rounding", "statistics").index)
    return TreatmentWay(
        name=TOGETHER,
        treatment=TOGETHER,
        apply=apply,
        code="\n".join(way.code for way in ways),
        numerics=worst,
        rank=0,
        compiles=any(way.compiles for way in ways),
        work=math.prod(way.work for way in ways),
    )


def nothing(name: str) -> TreatmentWay:
    """A way that changes nothing, tried in place of a way that is left out."""
    return TreatmentWay(
        name=name, treatment=name, apply=lambda workload, kept: nullcontext(workload), code="", numerics="rounding",
        rank=0,
    )  # fmt: skip


def _versions(gobrrr: str) -> Versions:
    found = find_device(None if on_gpu() else "cpu").environment()
    return Versions(
        device=found.device_name, driver=found.driver, torch=found.torch, python=found.python, gobrrr=gobrrr
    )


def load(target: str) -> Workload:
    """The workload that "file.py:callable" or "package.module:callable" names: what the callable returns, or itself as
    a step.

    Raises UsageError or InputError where there is none; exceptions of the call pass through.
    """
    return workload_of(find_callable(target), target)


@contextmanager
def put_back(target: Workload | Callable[..., Any]) -> Iterator[list[str]]:
    """Puts the state that a callable reaches back at the end, because the callable is called to see what it is.

    Yields notes on what can't be put back. A Workload is not called; each run of its step puts its own changes back.
    """
    notes: list[str] = []
    if isinstance(target, Workload) or not callable(target):
        yield notes
        return
    before = snapshot(Workload(step=target))
    if not before.whole:
        notes.append(NOT_PUT_BACK)
    try:
        yield notes
    finally:
        before.restore()


def workload_of(target: Workload | Callable[..., Any], name: str) -> Workload:
    """A Workload as it is. A callable is called once: it returns a Workload, or it ran a step and is the step
    itself."""
    import torch

    if isinstance(target, Workload):
        return target
    if isinstance(target, torch.nn.Module):
        raise UsageError(f"{name} is a module: what it is called with is missing; Workload(model=..., inputs=(...))")
    if not callable(target):
        raise UsageError(f"{name}: a workload is a gobrrr.Workload, a step, or what returns one, not "
                         f"{type(target).__name__}")  # fmt: skip
    check_arguments(target, name)
    returned = target()
    if isinstance(returned, Workload):
        return returned
    if isinstance(returned, torch.nn.Module) or inspect.isroutine(returned) or inspect.isgenerator(returned):
        raise UsageError(f"{name} returned a {type(returned).__name__} and ran no step; return a gobrrr.Workload")
    if inspect.iscoroutine(returned):
        returned.close()
        raise UsageError(f"{name} is asynchronous and ran nothing")
    return Workload(step=target, name=name)
