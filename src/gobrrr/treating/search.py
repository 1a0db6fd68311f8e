"""Greedy search: the way with the largest predicted saving is tried next; what helped is kept, then all is predicted.

Nothing here runs a step: a `Bench` diagnoses and tries, in this process or in one of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

from msgspec.structs import replace

from gobrrr import units
from gobrrr.model.treated import TrialRecord
from gobrrr.treating.candidates import Candidate, Looked
from gobrrr.treating.ledger import Ledger, calibrated

LEAST_SHARE = 0.02
"""A way that is predicted to save less of the step is not tried; a prediction that grows by less changes nothing."""

BUDGET_S = 300.0
SECONDS_SHARE, SECONDS_STEPS, SECONDS = 0.1, 100, (4.0, 30.0)
"""What the timing of one trial may take: a share of the budget or so many steps, within these ends in seconds."""

INTERRUPTED = "interrupted"
"""What `stopped` says where the user ended the search."""

Stages = Callable[[str, int, int], None]


CHANGED = "may be changed"
"""What a trial says where the workload could not be put back."""


class Bench(Protocol):
    """Where steps are run. `renews`: it makes the workload anew where one was spoilt."""

    renews: bool

    def look(self, kept: Sequence[str]) -> Looked:
        """Diagnose the step with what is kept. Raises UsageError where it can't be run, Died where its process died."""

    def trial(self, kept: Sequence[str], way: Candidate, seconds: float) -> TrialRecord:
        """One trial; a death of the process is a verdict."""

    def together(self, kept: Sequence[str], seconds: float) -> TrialRecord:
        """All kept ways at once, against the step as it was."""


class Telling:
    """Progress of a bench, told with the way that is being tried."""

    def __init__(self, stages: Stages | None) -> None:
        self._stages = stages
        self.about = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Pass a stage on."""
        if self._stages is not None:
            known = not self.about or stage.startswith(self.about)
            self._stages(stage if known else f"{self.about}: {stage}", done, total)


TOGETHER = "all together"
"""What the trial of all kept ways at once is called."""


class Died(Exception):
    """The process that ran the steps died or hung: one line says how."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may ask for. `only` and `without` name ways or treatments; `seconds` None: by the budget."""

    budget_s: float = BUDGET_S
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    again: bool = False
    dry_run: bool = False
    seconds: float | None = None

    def trial_s(self, step_ns: float | None) -> float:
        """What the timing of one trial may take, of a step that takes so long."""
        steps = SECONDS_STEPS * (step_ns or 0.0) / 1e9
        return self.seconds or min(max(SECONDS_SHARE * self.budget_s, steps, SECONDS[0]), SECONDS[1])


@dataclass(frozen=True)
class Choice:
    """A way to try next: with what it is predicted to save, and the kept way that it would stand in place of."""

    candidate: Candidate
    expected: float | None
    low: float | None
    high: float | None
    instead_of: str = ""


@dataclass
class Found:
    """What a search has found so far; complete at any moment."""

    before: Looked
    looked: Looked
    kept: list[Candidate] = field(default_factory=list)
    trials: list[TrialRecord] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    factor: float = 1.0
    together: TrialRecord | None = None
    fresh_look: bool = True


class Search:
    """One search. `run` returns when nothing is left, the budget is spent, or the user interrupts."""

    def __init__(
        self, bench: Bench, before: Looked, options: Options, ledger: Ledger | None = None,
        clock: Callable[[], float] = time.monotonic, begun: float | None = None, tell: Telling | None = None,
    ) -> None:  # fmt: skip
        self._bench, self._options, self._ledger, self._clock = bench, options, ledger, clock
        self._begun = clock() if begun is None else begun
        self._tell = tell or Telling(None)
        self._spent: list[float] = []
        self._refused: dict[str, TrialRecord] = {}
        self.found = Found(before, before)

    def run(self) -> Found:
        """Try until nothing is left. An interrupt ends it with what is known so far."""
        found = self.found
        try:
            while not found.stopped:
                choice = self.next()
                if choice is None:
                    found.stopped = self._nothing_left()
                elif self._options.dry_run:
                    found.stopped = "nothing was applied: --dry-run"
                elif late := self._no_time():
                    found.stopped = late
                else:
                    self._try(choice)
            if len(found.kept) > 1:
                self._join()
        except KeyboardInterrupt:
            found.stopped = INTERRUPTED
        waiting = self.ranked()  # why each of the others was left, as things stand now
        if not self._options.dry_run:
            why = "interrupted" if found.stopped == INTERRUPTED else "the budget was spent"
            found.left = {**{one.candidate.way: f"{why} before its turn" for one in waiting}, **found.left}
        return found

    def _join(self) -> None:
        """Measure all that was kept at once: what each saved on top of the others need not add up."""
        found = self.found
        if self._no_time():
            found.notes.append("what was kept was not timed all at once: the budget was spent")
            return
        self._tell.about = TOGETHER
        record = self._bench.together([one.way for one in found.kept], self._options.trial_s(found.before.step_ns))
        found.together = record
        if record.verdict == "inconclusive" or record.timing is None:
            found.notes.append(f"what was kept could not be judged all at once: {record.why}")
            return
        found.factor = 1.0 - _share(record)
        if record.verdict != "helped":
            found.notes.append(f"all that was kept, at once, {words(record)}: {record.why}")

    def ranked(self) -> list[Choice]:
        """What could be tried now, in the order of it; why the others are left goes to `found.left`."""
        choices = []
        self.found.left = {one.way: one.why for one in self.found.looked.unfit}
        for one in self.found.looked.candidates:
            if any(one.way == kept.way for kept in self.found.kept):
                continue
            choice = self._choice(one)
            why = self._why_not(choice)
            if not why:
                choices.append(choice)
            elif one.way not in self._refused:
                self.found.left[one.way] = why
        return sorted(choices, key=_turn)

    def next(self) -> Choice | None:
        """The way to try next; None where nothing is left."""
        return next(iter(self.ranked()), None)

    def _choice(self, one: Candidate) -> Choice:
        rivals = [kept.way for kept in self.found.kept if kept.treatment == one.treatment]
        instead = rivals[0] if len(rivals) == 1 else ""
        if one.expected_ns is None or one.low_ns is None or one.high_ns is None:
            return Choice(one, None, None, None, instead)
        looked, step = self.found.looked, self._step
        errors: list[float] = []
        if self._ledger is not None and looked.versions is not None:
            errors = self._ledger.errors(one.treatment, looked.versions.device)
        if step is None:
            return Choice(one, one.expected_ns, one.low_ns, one.high_ns, instead)
        return Choice(one, *calibrated(errors, one.expected_ns, one.low_ns, one.high_ns, step), instead)

    @property
    def _step(self) -> float | None:
        return self.found.looked.step_ns

    def _why_not(self, choice: Choice) -> str:
        """Why a way is not tried now; "" where it is."""
        one, options = choice.candidate, self._options
        names = {one.way, one.treatment}
        if names & set(options.without):
            return "left out by --without"
        if options.only and not names & set(options.only):
            return "left out by --only"
        forced = bool(options.only)
        if one.way in self._refused:
            return self._still_refused(choice)
        if against := self._conflict(one, choice.instead_of):
            return f"can't stand beside {against}, which was kept"
        if one.why_not and not forced:
            return one.why_not
        least = LEAST_SHARE * self._step if self._step is not None else 0.0
        if choice.high is not None and choice.high < least and not forced:
            most = max(choice.high, 0.0)
            return f"predicted to save at most {units.duration(most)}" if most > 0 else "predicted to save nothing"
        if choice.instead_of:
            return self._no_better(choice, least)
        return self._as_refused(choice, least) if not forced else ""

    def _still_refused(self, choice: Choice) -> str:
        """A way that was tried has another turn only where more is predicted for it than then."""
        before = self._refused[choice.candidate.way]
        if before.verdict not in ("no_change", "hurt") or choice.expected is None or before.expected_ns is None:
            return "was tried"
        if not before.step_ns or not self._step:
            return "was tried"
        grown = choice.expected / self._step - before.expected_ns / before.step_ns
        return "" if grown > LEAST_SHARE and not choice.instead_of else "was tried"

    def _conflict(self, one: Candidate, instead_of: str) -> str:
        """The kept way that this one can't be kept together with."""
        for kept in self.found.kept:
            if kept.way == instead_of:
                continue
            if {kept.way, kept.treatment} & set(one.conflicts) or {one.way, one.treatment} & set(kept.conflicts):
                return kept.way
        return ""

    def _no_better(self, choice: Choice, least: float) -> str:
        """Another way of a treatment that is kept: tried where, beyond that one, it is predicted to save more."""
        kept = next(one for one in self.found.kept if one.way == choice.instead_of)
        why = f"another way of {choice.instead_of}, which was kept, and predicted to be no better"
        if choice.expected is None or choice.candidate.as_if == kept.as_if:
            return why
        return "" if choice.expected > least else why

    def _as_refused(self, choice: Choice, least: float) -> str:
        """Another way that is predicted the same as one that was measured to save nothing, or too little to be seen."""
        one = choice.candidate
        for way, record in self._refused.items():
            if record.treatment != one.treatment or record.verdict == "unsafe" or record.timing is None:
                continue
            was = next((it for it in self.found.looked.candidates if it.way == way), None)
            if was is None or was.as_if != one.as_if or choice.expected is None or record.expected_ns is None:
                continue
            if choice.expected <= record.expected_ns + least:
                return f"predicted the same as {way}, which {words(record)}"
        return ""

    def _no_time(self) -> str:
        """Why no other trial is begun; "" where one more fits the budget."""
        budget, elapsed = self._options.budget_s, self._clock() - self._begun
        mean = sum(self._spent) / len(self._spent) if self._spent else 0.0
        if elapsed + mean <= budget and elapsed < budget:
            return ""
        spent = f"{elapsed:.0f} s of {budget:g} s were spent"
        return f"the budget: {spent}" + (f" and a trial takes {mean:.0f} s" if mean else "")

    def _try(self, choice: Choice) -> None:
        one, found = choice.candidate, self.found
        base = [kept.way for kept in found.kept if kept.way != choice.instead_of]
        self._tell.about = one.way
        began = self._clock()
        looked = found.looked
        known = None
        if self._ledger is not None and not self._options.again:
            known = self._ledger.find(looked.versions, looked.fingerprint, base, one.way)
        if known is not None and known.verdict == "inconclusive" and not known.died:
            known = None  # times that scattered, memory that was short: another day they may not
        if known is not None:
            record = replace(known, from_ledger=known.date, instead_of=choice.instead_of)
        else:
            record = self._predicted(self._bench.trial(base, one, self._options.trial_s(self._step)), choice)
            if self._ledger is not None:
                self._ledger.add(record)
        found.trials.append(record)
        if CHANGED in record.why and known is None and not self._bench.renews:
            found.stopped = f"{record.way} left the workload changed, and this process can't make it anew"
        self._judge(record, choice)
        if known is None:
            self._spent.append(self._clock() - began)

    def _predicted(self, record: TrialRecord, choice: Choice) -> TrialRecord:
        """A measured trial, with what was predicted of it and what it is remembered by."""
        one, looked = choice.candidate, self.found.looked
        both = choice.low is not None and choice.high is not None
        whole = one.low_ns is not None and one.high_ns is not None
        return replace(
            record,
            code=one.code,
            expected_ns=choice.expected,
            predicted_saving_ns=(choice.low, choice.high) if both else None,
            replayed_expected_ns=one.expected_ns,
            replayed_saving_ns=(one.low_ns, one.high_ns) if whole else None,
            step_ns=self._step,
            instead_of=choice.instead_of,
            fingerprint=looked.fingerprint,
            versions=looked.versions,
            date=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        )

    def _judge(self, record: TrialRecord, choice: Choice) -> None:
        one, found = choice.candidate, self.found
        helped = record.verdict == "helped"
        if helped and choice.instead_of:
            helped = self._beats(record, choice.instead_of)
        why = _because(choice, self._step)
        found.order.append(f"{record.way}: {why}; {words(record)}{', kept' if helped else ''}")
        if not helped:
            self._refused[one.way] = record
            return
        if choice.instead_of:
            self._refused[choice.instead_of] = next(it for it in found.trials if it.way == choice.instead_of)
        found.kept = [it for it in found.kept if it.way != choice.instead_of] + [one]
        found.factor = _factor(found.trials, [it.way for it in found.kept])
        self._tell.about = f"with {one.way}"
        found.fresh_look = False
        try:
            found.looked, found.fresh_look = self._bench.look([it.way for it in found.kept]), True
        except Died as died:
            found.notes.append(f"the step with {one.way} could not be diagnosed again ({died}): "
                               "what comes after it was predicted before it")  # fmt: skip

    def _beats(self, record: TrialRecord, kept: str) -> bool:
        """Whether a way is faster than the kept one of its treatment; both were measured on top of the others."""
        other = next((it for it in reversed(self.found.trials) if it.way == kept and it is not record), None)
        if other is None or other.timing is None or record.timing is None:
            return False
        mine, its = _share(record), _share(other)
        spread = record.timing.spread_ns / record.timing.before_ns + other.timing.spread_ns / other.timing.before_ns
        return mine - its > spread

    def _nothing_left(self) -> str:
        if self.found.left or self.found.trials:
            return f"nothing is left that is predicted to save {units.percent(LEAST_SHARE)} of the step"
        return "no way of any treatment fits this workload"


def _turn(choice: Choice) -> tuple[bool, bool, float, float]:
    """What is predicted comes first, and of that what makes a step shorter: more work in it only hides."""
    throughput = choice.candidate.work != 1.0
    return choice.expected is None, throughput, -(choice.expected or 0.0), -(choice.high or 0.0)


def words(one: TrialRecord) -> str:
    """A verdict in words that follow a name."""
    return {
        "helped": "helped", "no_change": "changed nothing", "hurt": "hurt",
        "unsafe": "was refused: the numbers differ", "inconclusive": "could not be judged",
    }[one.verdict]  # fmt: skip


def _because(choice: Choice, step: float | None) -> str:
    """Why it is a way's turn."""
    if choice.expected is None:
        return "nothing predicts it, and what could be predicted was tried"
    share = f" ({units.percent(choice.expected / step)})" if step and choice.expected >= 0 else ""
    instead = f", in place of {choice.instead_of}" if choice.instead_of else ""
    if choice.candidate.work != 1.0:
        return f"predicted {units.duration(choice.expected)}{share} for the same work, last: the step gets no shorter"
    return f"the most predicted, {units.duration(choice.expected)}{share}{instead}"


def _share(one: TrialRecord) -> float:
    """What a trial saved, as a share of the step before it."""
    return (one.saving_ns or 0.0) / one.timing.before_ns if one.timing is not None else 0.0


def _factor(trials: Sequence[TrialRecord], kept: Sequence[str]) -> float:
    """The step with all that is kept over the step as it was, per unit of work, as the trials measured."""
    factor = 1.0
    for way in kept:
        last = next(it for it in reversed(trials) if it.way == way)
        factor *= 1.0 - _share(last)
    return factor
