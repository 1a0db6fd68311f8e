"""A process that runs steps on a clock of its own: starting it, steps, compiling and being ended let it pass.

A trial is a real one, of a small model whose steps let the clock pass; looking at a step lets as many steps pass.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.errors import UsageError
from gobrrr.model.treated import Treated, TrialRecord
from gobrrr.trials import looking
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.candidates import StepOverview
from gobrrr.trials.choosing import SearchOptions
from gobrrr.trials.ledger import Ledger
from gobrrr.trials.pace import GRACE_SHARE, UNDECIDED, TrialTime
from gobrrr.trials.search import ProcessDied, ProcessTooSlow
from gobrrr.trials.treat import run
from gobrrr.trials.trial import run_trial
from tests.report import samples
from tests.trials import fakes
from tests.trials.benches import VERSIONS

EXAMINING_S = 1.0
WINDOW_STEPS, PROFILED_STEPS = 11, 6


class Ended(BaseException):
    """The process was ended."""


@dataclass(frozen=True)
class Kind:
    """A way that exists: what it is predicted to save, what it does, and how long it compiles."""

    name: str
    predicted: float
    saves: float
    compile_s: float = 0.0


@dataclass
class Simulated:
    """One run of a budget. `step_s` is scattered by `noise`; `load_s` is what a process takes to be there, `load` how
    many times as slow the machine is once the first steps were seen; `once_s`: what is measured once on it."""

    budget_s: float
    step_s: float
    kinds: Sequence[Kind]
    load_s: float = 5.0
    load: float = 1.0
    noise: float = 0.02
    seed: int = 0
    renews: bool = True
    start_s: float = 0.0
    down: bool = True
    once_s: float = 0.0
    kept_s: dict[str, float] = field(default_factory=dict)
    starts: int = 0

    def __post_init__(self) -> None:
        self._dice, self._until = random.Random(self.seed), float("inf")
        self._compiled: set[str] = set()

    @property
    def now(self) -> float:
        """Seconds."""
        return fakes.Clock.now / 1e9

    def passes(self, seconds: float) -> None:
        """Time passes, until the process is ended."""
        fakes.Clock.now += seconds * 1e9
        if self.now > self._until:
            fakes.Clock.now = self._until * 1e9
            raise Ended

    def look(self, kept: Sequence[str], within_s: float, spent_s: float) -> StepOverview:
        """As many steps as looking takes."""
        begin = self.now
        try:
            with self._alive(within_s):
                left = within_s - (self.now - begin)
                seen = looking.DiagnosisProgress(
                    None, left, spent_s + within_s - left, first=not kept, once_s=self.once_s, clock=lambda: self.now
                )
                own = self.now
                self._steps(kept, seen)
                took = self.now - own
                with seen.once() as affordable:
                    self.passes(self.once_s if affordable else 0.0)
        except Ended:
            self.down = True
            raise (ProcessTooSlow if kept else UsageError)(f"--budget {2 * self.budget_s:.0f}") from None
        step = self._step(kept)
        ways = tuple(self._candidate(one, step) for one in self.kinds)
        return StepOverview(diagnosis=samples.overhead(), step_ns=step * 1e9, candidates=ways, fingerprint="f",
                      versions=VERSIONS, seconds=took, once_s=0.0 if affordable else self.once_s)  # fmt: skip

    def _steps(self, kept: Sequence[str], seen: looking.DiagnosisProgress) -> None:
        step = self._step(kept)
        for name in kept:
            self.passes(0.25 * self._kind(name).compile_s)
        for done in range(looking.WARMUP + 1):
            seen(looking.WARMING, done, looking.WARMUP)
            if done < looking.WARMUP:
                self.passes(step)
        for stage, least, most, seconds in (
            (looking.TIMING, looking.WINDOW, WINDOW_STEPS, looking.WINDOW_S),
            (looking.RECORDING, looking.PROFILED, PROFILED_STEPS, looking.PROFILED_S),
        ):
            begin = self.now
            for done in range(most):
                if done >= least and self.now - begin > seconds:
                    break
                self.passes(step * self.load)
                seen(stage, done + 1, most)
        self.passes(looking.LOOKED * step + EXAMINING_S)

    def trial(self, kept: Sequence[str], way: Candidate, allowed: TrialTime, instead_of: str = "") -> TrialRecord:
        """A real trial."""
        return self._tried(kept, [way.way], allowed)

    def together(self, kept: Sequence[str], allowed: TrialTime) -> TrialRecord:
        """All of them against none."""
        return replace(self._tried([], kept, allowed), way="all together", treatment="all together")

    def _tried(self, kept: Sequence[str], names: Sequence[str], allowed: TrialTime) -> TrialRecord:
        begin = self.now
        made = fakes.training()
        made.model[0].naps = self.step_s
        name = names[0] if len(names) == 1 else "all together"
        whole = fakes.way(self._applied(names), name, compiles=any(self._kind(one).compile_s for one in names))
        others = [fakes.way(self._applied([one]), one) for one in kept]
        try:
            with self._alive(allowed.within_s):
                left = allowed.within_s - (self.now - begin)
                return run_trial(made, others, whole, allowed=replace(allowed, within_s=left), clock=fakes.Clock.ns)
        except Ended:
            self.down = True
            seconds = self.now - begin
            return TrialRecord(way=name, treatment=name, kept=tuple(kept), verdict="inconclusive", late=True,
                               why=UNDECIDED, seconds=seconds)  # fmt: skip

    def _applied(self, names: Sequence[str]) -> Callable[..., Iterator[Any]]:
        """Naps are shorter by what the ways save; at the first step of an arm they compile."""

        def apply(workload: Any, kept: dict[str, Any]) -> Iterator[Any]:
            slow = workload.model[0]
            before, shorter = slow.naps, slow.naps
            for name in names:
                shorter *= 1 - self._kind(name).saves
            slow.naps = shorter
            try:
                yield from fakes.first(workload, kept, lambda: self._compile(names))
            finally:
                slow.naps = before

        return apply

    def _compile(self, names: Sequence[str]) -> bool:
        seconds = sum(self._kind(one).compile_s * (0.25 if one in self._compiled else 1.0) for one in names)
        if seconds:
            self.passes(seconds)
            self._compiled |= set(names)
        return bool(seconds)

    def _alive(self, within_s: float) -> Any:
        return _Alive(self, within_s)

    def _kind(self, name: str) -> Kind:
        return next(one for one in self.kinds if one.name == name)

    def _step(self, kept: Sequence[str]) -> float:
        step = self.step_s
        for name in kept:
            step *= 1 - self._kind(name).saves
        return step

    def _candidate(self, one: Kind, step: float) -> Candidate:
        expected = one.predicted * step * 1e9
        return Candidate(way=one.name, treatment=one.name, as_if=(one.name,), compiles=one.compile_s > 0,
                         expected_ns=expected, low_ns=0.8 * expected, high_ns=1.2 * expected)  # fmt: skip

    def nap(self, seconds: float) -> None:
        """What a layer's nap takes on a machine that scatters."""
        self.passes(self.load * seconds * (1 + abs(self._dice.gauss(0, self.noise))))


class _Alive:
    """The process is there, started if need be, and is ended when its time is over."""

    def __init__(self, bench: Simulated, within_s: float) -> None:
        self._bench, self._within = bench, within_s

    def __enter__(self) -> None:
        bench = self._bench
        bench._until = bench.now + self._within + GRACE_SHARE * bench.budget_s
        if bench.down:
            begin = bench.now
            bench.starts += 1
            bench.passes(bench.load_s)
            bench.start_s, bench.down = bench.now - begin, False

    def __exit__(self, *_: object) -> None:
        self._bench._until = float("inf")


def treated(bench: Simulated, ledger: Ledger) -> Treated | str:
    """What comes of it, or what is said where there is nothing; the clock begins at 0."""
    fakes.Clock.now = 0.0
    with pytest.MonkeyPatch.context() as patch, suppress(ProcessDied):
        patch.setattr(fakes.Clock, "sleep", classmethod(lambda _, seconds: bench.nap(seconds)))
        try:
            return run(bench, "w.py:workload", SearchOptions(budget_s=bench.budget_s), ledger, clock=lambda: bench.now)
        except UsageError as error:
            return str(error)
    raise AssertionError("a process that died was not noticed")
