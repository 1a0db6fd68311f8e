"""Greedy search: the way with the largest predicted saving is tried next; what helped is kept, then all is predicted.

Nothing here runs a step: a `Bench` diagnoses and tries, in this process or in one of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Protocol

from msgspec.structs import replace

from gobrrr import units
from gobrrr.model.treated import TrialRecord
from gobrrr.treating.candidates import Candidate, Looked
from gobrrr.treating.choosing import Choice, Chooser, Found, Options, Tried, ratio, words
from gobrrr.treating.costs import Costs
from gobrrr.treating.ledger import Ledger

LOOK_STEPS, TRIAL_STEPS = 25, 90
"""Steps that looking at a step takes, and a trial at the least: 2 plain ones, 4 of warm-up in each arm, 7 times 2 whose
numbers are compared, and 8 rounds of 4 blocks of 2."""

SECONDS_USED = 1.5
"""What a trial takes, in what it is given for warm-up and timing: the numbers are compared beside."""

LEAST_SECONDS = 0.5
APART = 1.5
"""A trial of the ledger stands for a step whose time is within this factor, and the trial's spread, of its own."""

DEATHS = 2
"""A trial that died so often is not run again."""

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

    def trial(self, kept: Sequence[str], way: Candidate, seconds: float, instead_of: str = "") -> TrialRecord:
        """One trial, on top of what is kept or in the place of one of it; a death of the process is a verdict."""

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


class Search:
    """One search. `run` returns when nothing is left, the budget is spent, or the user interrupts."""

    def __init__(
        self, bench: Bench, before: Looked, options: Options, ledger: Ledger | None = None,
        clock: Callable[[], float] = time.monotonic, begun: float | None = None, tell: Telling | None = None,
    ) -> None:  # fmt: skip
        self._bench, self._options, self._ledger, self._clock = bench, options, ledger, clock
        self._begun = clock() if begun is None else begun
        self._tell = tell or Telling(None)
        self._costs = Costs()
        self._tried: dict[str, Tried] = {}
        self._trying = self._fits = ""
        self.found = Found(before, before)
        self._chooser = Chooser(self.found, options, ledger)

    def run(self) -> Found:
        """Try until nothing is left. An interrupt ends it with what is known so far."""
        found = self.found
        try:
            while not found.stopped:
                choices = self.ranked()
                if not choices:
                    found.stopped = self._chooser.nothing_left()
                elif self._options.dry_run:
                    found.stopped = "nothing was applied: --dry-run"
                else:
                    self._turn_of(choices)
            if found.apart:
                self._join()
        except KeyboardInterrupt:
            found.stopped = INTERRUPTED
        waiting = self.ranked()  # why each of the others was left, as things stand now
        if not self._options.dry_run:
            self._leave(waiting)
        return found

    def ranked(self) -> list[Choice]:
        """What could be tried now, in the order of it; why the others are left goes to `found.left`."""
        return self._chooser.ranked()

    def _leave(self, waiting: Sequence[Choice]) -> None:
        """Why those that could still be tried were not. What was tried is among the trials."""
        found = self.found
        interrupted = found.stopped == INTERRUPTED
        tried = {one.way for one in found.trials}
        why = "interrupted" if interrupted else "the search ended" if self._spoilt else "the budget was spent"
        turns = {one.candidate.way: f"{why} before its turn" for one in waiting if one.candidate.way not in tried}
        if self._trying and self._trying not in tried:
            turns[self._trying] = "interrupted during its trial"
        found.left = {**turns, **{way: reason for way, reason in found.left.items() if way not in turns}}

    @property
    def _spoilt(self) -> bool:
        return "left the workload changed" in self.found.stopped

    def _join(self) -> None:
        """Measure all that was kept at once: what each saved on top of the others need not add up."""
        found = self.found
        if self._no_time(found.before.step_ns, self._joining(found.kept)):
            found.notes.append("what was kept was not timed all at once: the budget was spent")
            return
        self._tell.about = TOGETHER
        record = self._bench.together([one.way for one in found.kept], self._seconds(found.before.step_ns))
        found.together = record
        if record.verdict == "inconclusive" or record.timing is None:
            found.notes.append(f"what was kept could not be judged all at once: {record.why}")
            return
        found.measured = record.timing.before_ns, record.timing.after_ns / record.work
        found.faster = ratio(record)
        if record.verdict != "helped":
            found.notes.append(f"all that was kept, at once, {words(record)}: {record.why}")

    @property
    def _step(self) -> float | None:
        return self.found.looked.step_ns

    @property
    def _left_s(self) -> float:
        return self._options.budget_s - (self._clock() - self._begun)

    def _seconds(self, step: float | None) -> float:
        """What a trial is given: no more than what is left of the budget."""
        return max(min(self._options.trial_s(step), self._left_s / SECONDS_USED), LEAST_SECONDS)

    def _no_time(self, step: float | None, trial: float, join: float = 0.0) -> str:
        """Why no trial that takes `trial` seconds, of a step of so many ns, is begun; "" where it fits the budget.

        `join`: what the trial of all that is kept takes after it, or 0.
        """
        budget, elapsed = self._options.budget_s, self._clock() - self._begun
        if elapsed + trial + join <= budget and elapsed < budget:
            return ""
        spent = f"the budget: {elapsed:.0f} s of {budget:g} s were spent"
        if not trial:
            return spent
        enough = (
            f": --budget {10 * math.ceil((elapsed + trial + join) / 10)}" if elapsed + trial + join > budget else ""
        )
        steps = TRIAL_STEPS * (step or 0.0) / 1e9
        of_step = f" of a step of {units.duration(step)}" if step and steps >= trial else ""
        same = f"{join:.0f}" == f"{trial:.0f}"
        beside = ", as does the one of all that is kept" if same else f", the one of all that is kept {join:.0f} s"
        twice = beside if join and elapsed + trial <= budget else ""
        return f"{spent} and a trial{of_step} takes{' about' if of_step else ''} {trial:.0f} s{twice}{enough}"

    def _joining(self, ways: Sequence[Candidate]) -> float:
        """What the trial of these ways at once takes, in seconds."""
        return max(self._costs.joined(ways), TRIAL_STEPS * (self.found.before.step_ns or 0.0) / 1e9)

    def _turn_of(self, choices: Sequence[Choice]) -> None:
        """Try the first way that there is time for, unless the ledger has the trial; one that takes longer waits."""
        late = ""
        for choice in choices:
            known = self._known(choice)
            why = self._late(choice) if known is None else self._over()
            if not why:
                self._chooser.take(choice)
                self._fits = " of what fits the budget" if late else ""
                self._try(choice, known)
                return
            late = late or why
        self.found.stopped = late

    def _late(self, choice: Choice) -> str:
        """Why there is no time for a trial."""
        trial = max(self._costs.of(choice.candidate), TRIAL_STEPS * (self._step or 0.0) / 1e9)
        kept = self.found.kept
        beside = [one for one in kept if one.way != choice.instead_of]
        return self._no_time(self._step, trial, self._joining([*beside, choice.candidate]) if kept else 0.0)

    def _over(self) -> str:
        """Why nothing more is read from the ledger either: each that helped is looked at anew."""
        if self._left_s > LOOK_STEPS * (self._step or 0.0) / 1e9:
            return ""
        return f"the budget: {self._clock() - self._begun:.0f} s of {self._options.budget_s:g} s were spent"

    def _known(self, choice: Choice) -> TrialRecord | None:
        """The ledger's trial of a way on top of the same kept ones, where it can stand for one of now."""
        looked, way = self.found.looked, choice.candidate.way
        if self._ledger is None or self._options.again:
            return None
        base = self._chooser.base(choice)
        known = self._ledger.find(looked.versions, looked.fingerprint, base, way)
        if known is None:
            return None
        if known.verdict == "inconclusive":  # times that scattered, memory that was short: another day they may not
            died = self._ledger.deaths(looked.versions, looked.fingerprint, base, way, self._options.limit_s)
            return known if known.died and died >= DEATHS else None
        if (now := self._apart(known, choice)) is not None:
            told = (
                f"{way}: the ledger's trial of {known.date[:10]} was of a step of {units.duration(_step_of(known))}, "
                f"which takes {units.duration(now)} now: it was not used"
            )
            if told not in self.found.notes:
                self.found.notes.append(told)
            return None
        return known

    def _apart(self, known: TrialRecord, choice: Choice) -> float | None:
        """The step as it is now, ns, where a trial of the ledger was of one that took far more or less; else None."""
        now = self._step
        was, spread = _step_of(known), known.timing.spread_ns if known.timing is not None else 0.0
        if not was or not now or not self.found.fresh_look:
            return None
        return now if max(was, now) > APART * min(was, now) + spread else None

    def _try(self, choice: Choice, known: TrialRecord | None) -> None:
        one, found = choice.candidate, self.found
        base = self._chooser.base(choice)
        self._tell.about = self._trying = one.way
        began = self._clock()
        if known is not None:
            record = replace(known, from_ledger=known.date, instead_of=choice.instead_of)
        else:
            record = self._bench.trial(base, one, self._seconds(self._step), choice.instead_of)
            if record.unapplied and CHANGED not in record.why:
                self._chooser.unapplied(one.way, record.why.removeprefix(f"{one.way} can't be applied: "))
                self._trying = ""
                return
            record = self._predicted(record, choice)
            if self._ledger is not None:
                self._ledger.add(record)
        found.trials.append(record)
        self._trying = ""
        if CHANGED in record.why and known is None and not self._bench.renews:
            found.stopped = f"{record.way} left the workload changed, and this process can't make it anew"
        self._judge(record, choice)
        if known is None:
            self._costs.add(one, self._clock() - began, record.compile_s)

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
            limit_s=self._options.limit_s,
            fingerprint=looked.fingerprint,
            versions=looked.versions,
            date=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        )

    def _judge(self, record: TrialRecord, choice: Choice) -> None:
        one, found = choice.candidate, self.found
        helped = record.verdict == "helped" and record.timing is not None
        why = _because(choice, self._step, self._fits)
        found.order.append(f"{record.way}: {why}; {words(record)}{', kept' if helped else ''}")
        tried = self._tried[one.way] = Tried(record, choice.expected, self._step)
        if not helped:
            self._chooser.refuse(one.way, tried)
            return
        if choice.instead_of:
            self._chooser.refuse(choice.instead_of, self._tried[choice.instead_of])
        found.kept = [it for it in found.kept if it.way != choice.instead_of] + [one]
        found.keep(record)
        self._tell.about = f"with {one.way}"
        found.fresh_look = False
        try:
            found.looked, found.fresh_look = self._bench.look([it.way for it in found.kept]), True
            found.notes += [one for one in found.looked.notes if one not in (*found.before.notes, *found.notes)]
        except Died as died:
            found.notes.append(f"the step with {one.way} could not be diagnosed again ({died}): "
                               "what comes after it was predicted before it")  # fmt: skip


def _because(choice: Choice, step: float | None, fits: str = "") -> str:
    """Why it is a way's turn. `fits`: words for that others were predicted more and take too long."""
    if choice.expected is None:
        return "nothing predicts it, and what could be predicted was tried"
    share = f" ({units.percent(choice.expected / step)})" if step and choice.expected >= 0 else ""
    instead = f", in place of {choice.instead_of}" if choice.instead_of else ""
    if choice.candidate.work != 1.0:
        return f"predicted {units.duration(choice.expected)}{share} for the same work, last: the step gets no shorter"
    if choice.candidate.slow:
        return f"predicted {units.duration(choice.expected)}{share}{instead}; late, for it compiles for minutes"
    return f"the most predicted{fits}, {units.duration(choice.expected)}{share}{instead}"


def _step_of(one: TrialRecord) -> float:
    """The step that a trial was of, ns; 0 where it was not timed."""
    return one.timing.before_ns if one.timing is not None else one.step_ns or 0.0
