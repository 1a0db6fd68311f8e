"""Searches for the ways that make a step faster.

The set of ways with the best prediction is tried at once. Then the way with the largest predicted saving is tried,
again and again, each time with new predictions; what helps is kept. Where nothing is left that is predicted to help,
the step is tried without each member of the set that may not pay. Runs no step: a `StepRunner` diagnoses and tries, in
this process or in a separate one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from msgspec.structs import replace

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.model.treated import TrialRecord
from gobrrr.trials import looking, sets
from gobrrr.trials.candidate import LEAST_SAVING_SHARE, Candidate
from gobrrr.trials.candidates import StepOverview
from gobrrr.trials.choosing import Choice, Chooser, SearchOptions, SearchState, TrialOutcome, ratio, words
from gobrrr.trials.ledger import Ledger
from gobrrr.trials.pace import SLOW_S, Stages, TrialTime
from gobrrr.trials.spending import Spending, Started

SECONDS_USED = 1.5
"""The time of a trial over its seconds for warm-up and timing: comparing the numbers comes on top. Chosen."""

LEAST_SECONDS = 0.5
"""The fewest seconds that a trial gets for warm-up and timing. Chosen, not measured."""
MOST_STEP_RATIO = 1.5
"""A trial of the ledger is reused where the step's times differ by no more than this factor plus the trial's spread.
Chosen, not measured."""

MOST_DEATHS = 2
"""A trial that died this often is not run again. Chosen, not measured."""

INTERRUPTED = "interrupted"
"""The value of `stopped` where the user ended the search."""

WORKLOAD_CHANGED = "may be changed"
"""Words in the reason of a trial after which the workload could not be restored."""


class StepRunner(Started, Protocol):
    """Runs the steps. `renews`: it can make the workload anew after one was spoilt."""

    renews: bool

    def look(self, kept: Sequence[str], within_s: float, spent_s: float) -> StepOverview:
        """Diagnose the step with the kept ways within `within_s` seconds; `spent_s`: seconds spent before, for
        messages.

        Raises UsageError where the step can't be run, or not in that time, and Died where its process died.
        """

    def trial(self, kept: Sequence[str], way: Candidate, allowed: TrialTime, instead_of: str = "") -> TrialRecord:
        """One trial, on top of the kept ways or in place of one of them; where the process dies, a record says so."""

    def together(self, kept: Sequence[str], allowed: TrialTime) -> TrialRecord:
        """One trial of all kept ways at once, against the step as it was."""


class NamedProgress:
    """Progress of a bench, with the name of the way that is being tried."""

    def __init__(self, stages: Stages | None) -> None:
        self._stages = stages
        self.about = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Pass a stage on."""
        if self._stages is not None:
            named = not self.about or stage.startswith(self.about)
            self._stages(stage if named else f"{self.about}: {stage}", done, total)


TOGETHER = "all together"
"""The name of the trial of all kept ways at once."""


class ProcessDied(Exception):
    """The process that runs the steps died or hung: one line says how."""


class ProcessTooSlow(ProcessDied):
    """The process did not answer in time and was ended: one line says what it was doing."""


class Search:
    """One search. `run` returns when nothing is left to try, the budget is spent, or the user interrupts."""

    def __init__(
        self, bench: StepRunner, before: StepOverview, options: SearchOptions, ledger: Ledger | None = None,
        clock: Callable[[], float] = time.monotonic, begun: float | None = None, tell: NamedProgress | None = None,
    ) -> None:  # fmt: skip
        self._bench, self._options, self._ledger, self._clock = bench, options, ledger, clock
        self._spending = Spending(options.budget_s, bench, clock, clock() if begun is None else begun)
        self._spending.costs.looked(before.seconds)
        self._tell = tell or NamedProgress(None)
        self._tried: dict[str, TrialOutcome] = {}
        self._trying = self._fits = ""
        self.found = SearchState(before, before)
        self._chooser = Chooser(self.found, options, ledger)

    def run(self) -> SearchState:
        """Try ways until nothing is left. An interrupt ends the search with what is known so far."""
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
        self._undecided()
        waiting = self.ranked()  # also updates why each other way was left
        if not self._options.dry_run:
            self._leave(waiting)
        return found

    def _undecided(self) -> None:
        """Suggest a budget where the budget was the reason that no trial was decided."""
        found = self.found
        late = [trial for trial in found.trials if trial.late]
        if self._decided or not late or found.stopped == INTERRUPTED:
            return
        trial = max(late, key=lambda late_trial: late_trial.seconds)
        found.needs_s = looking.enough(
            self._spending.budget_s + trial.seconds, self._spending.budget_s, found.before.once_s
        )
        more = f"--budget {found.needs_s:g} gives it twice as long"
        found.stopped = f"no trial was decided in the time: {trial.way} was ended after {trial.seconds:.0f} s, {more}"

    def ranked(self) -> list[Choice]:
        """The ways that could be tried now, in order; writes to `found.left` why the others are not."""
        return self._chooser.ranked()

    def _leave(self, waiting: Sequence[Choice]) -> None:
        """Note why ways that could still be tried were not."""
        found = self.found
        interrupted = found.stopped == INTERRUPTED
        tried = {trial.way for trial in found.trials}
        why = "interrupted" if interrupted else "the search ended" if self._spoilt else "the budget was spent"
        tried |= {name for trial in found.trials for name in trial.members}
        single = [
            choice.candidate for choice in waiting if not (choice.candidate.members or choice.candidate.leaves_out)
        ]
        turns = {candidate.way: f"{why} before its turn" for candidate in single if candidate.way not in tried}
        if self._trying and self._trying not in tried:
            turns[self._trying] = "interrupted during its trial"
        found.left = {**turns, **{way: reason for way, reason in found.left.items() if way not in turns}}

    @property
    def _spoilt(self) -> bool:
        return "left the workload changed" in self.found.stopped

    def _join(self) -> None:
        """Measure all kept ways at once, because their savings need not add up."""
        found, step = self.found, self.found.before.step_ns
        if self._spending.joined(found.kept, (step or 0.0) / 1e9) > self._spending.left:
            found.notes.append("what was kept was not timed all at once: the budget was spent")
            return
        self._tell.about = TOGETHER
        record = self._bench.together(
            [candidate.way for candidate in found.kept], self._allowed(step, self._spending.left)
        )
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
    def _step_s(self) -> float:
        return (self._step or 0.0) / 1e9

    def _allowed(self, step: float | None, within: float) -> TrialTime:
        """The time for a trial that has to end within so many seconds."""
        seconds = max(min(self._options.trial_s(step), within / SECONDS_USED), LEAST_SECONDS)
        step_s = None if step is None else step / 1e9
        return TrialTime(seconds=seconds, within_s=within, step_s=step_s, patient=not self._decided)

    def _turn_of(self, choices: Sequence[Choice]) -> None:
        """Try the first way that there is time for, or take its trial from the ledger; ways that take longer wait."""
        late: list[Turn] = []
        for choice in choices:
            remembered, turn = self._known(choice), self._turn(choice, choices)
            fits = turn.fits if remembered is None else self._spending.left > self._spending.look([choice.candidate])
            if fits:
                self._chooser.take(choice)
                self._fits = " of what fits the budget" if late else ""
                self._try(choice, remembered, turn.within)
                return
            late.append(turn)
        self._stop(late)

    def _turn(self, choice: Choice, choices: Sequence[Choice]) -> Turn:
        """The time that the trial of a way needs, and the time that there is for it."""
        candidate, spending = choice.candidate, self._spending
        needs = max(spending.trial(candidate, self._step_s), self._took_longer(choice))
        if self._decided:
            kept = [*(member for member in self.found.kept if member.way != choice.instead_of), candidate]
            after = spending.after(kept, (self.found.before.step_ns or 0.0) / 1e9)
        else:
            others = (
                [other.candidate for other in choices if not other.candidate.compiles] if candidate.compiles else []
            )
            after = spending.instead(others, self._step_s)
        return Turn(needs, after, spending.left - after)

    @property
    def _decided(self) -> bool:
        """Whether any trial has a verdict: until then no time is reserved for what comes after a trial."""
        return any(trial.verdict != "inconclusive" for trial in self.found.trials)

    def _took_longer(self, choice: Choice) -> float:
        """The time after which the budget ended a trial of the ledger; 0 where there is none."""
        looked = self.found.looked
        if self._ledger is None:
            return 0.0
        return self._ledger.longer_than(
            looked.versions, looked.fingerprint, self._chooser.base(choice), choice.candidate.way
        )

    def _stop(self, late: Sequence[Turn]) -> None:
        """Stop, because none of the ways that are left fits into what is left of the budget."""
        found, spending, step = self.found, self._spending, self._step
        turn = min(late, key=lambda waiting: waiting.needs + waiting.after) if not self._decided else late[0]
        spent = f"the budget: {spending.spent:.0f} s of {spending.budget_s:g} s were spent"
        of_step = f" of a step of {units.duration(step)}" if step and step / 1e9 >= SLOW_S else ""
        beside = f", measuring all that is kept after it {turn.after:.0f} s" if turn.after >= 1.0 else ""
        enough = spending.enough(turn.needs + turn.after, found.before.once_s)
        more = f": --budget {enough:g}" if enough > spending.budget_s else ""
        found.stopped = f"{spent}; a trial{of_step} takes about {turn.needs:.0f} s{beside}{more}"
        if not found.trials:
            found.needs_s = enough

    def _known(self, choice: Choice) -> TrialRecord | None:
        """The ledger's trial of a way on top of the same kept ways, where it can replace a new one."""
        looked, way = self.found.looked, choice.candidate.way
        if self._ledger is None or self._options.again:
            return None
        base = self._chooser.base(choice)
        remembered = self._ledger.find(looked.versions, looked.fingerprint, base, way)
        if remembered is None:
            return None
        if remembered.disturbed:
            return None
        if remembered.verdict == "inconclusive":  # noise or short memory may be gone another day
            died = self._ledger.deaths(looked.versions, looked.fingerprint, base, way, self._options.limit_s)
            return remembered if remembered.died and died >= MOST_DEATHS else None
        if (now := self._apart(remembered, choice)) is not None:
            was = units.duration(_step_of(remembered))
            note = (
                f"{way}: the ledger's trial of {remembered.date[:10]} was not used: its step took {was}, and takes "
                f"{units.duration(now)} now"
            )
            if note not in self.found.notes:
                self.found.notes.append(note)
            return None
        return remembered

    def _apart(self, remembered: TrialRecord, choice: Choice) -> float | None:
        """The step's time now, in ns, where it differs too much from that of a trial of the ledger; else None."""
        now = self._step
        was, spread = _step_of(remembered), remembered.timing.spread_ns if remembered.timing is not None else 0.0
        if not was or not now or not self.found.fresh_look:
            return None
        return now if max(was, now) > MOST_STEP_RATIO * min(was, now) + spread else None

    def _try(self, choice: Choice, remembered: TrialRecord | None, within: float) -> None:
        candidate, found = choice.candidate, self.found
        base = self._chooser.base(choice)
        self._tell.about = self._trying = candidate.way
        began = self._clock()
        if remembered is not None:
            record = replace(remembered, from_ledger=remembered.date, instead_of=choice.instead_of)
        else:
            record = self._bench.trial(base, candidate, self._allowed(self._step, within), choice.instead_of)
            self._learn(candidate, record, self._clock() - began)
            if record.unapplied and WORKLOAD_CHANGED not in record.why:
                self._unapplied(candidate, record)
                self._trying = ""
                return
            record = self._predicted(record, choice)
            if self._ledger is not None:
                self._ledger.add(record)
        found.trials.append(record)
        self._trying = ""
        if WORKLOAD_CHANGED in record.why and remembered is None and not self._bench.renews:
            found.stopped = f"{record.way} left the workload changed, and this process can't make it anew"
        self._judge(record, choice)

    def _unapplied(self, candidate: Candidate, record: TrialRecord) -> None:
        """Note a way that can't be applied; a set with it is tried without it."""
        why = record.why.removeprefix(f"{candidate.way} can't be applied: ")
        self._chooser.unapplied(record.unfit_member or candidate.way, why)
        if candidate.members:
            self._chooser.split(candidate, record.unfit_member)

    def _learn(self, candidate: Candidate, record: TrialRecord, seconds: float) -> None:
        """Learn from a trial's time how long the next ones take."""
        if record.late:
            self._spending.costs.ended(candidate, seconds)
        elif not record.died:
            self._spending.costs.add(candidate, seconds, record.compile_s)

    def _predicted(self, record: TrialRecord, choice: Choice) -> TrialRecord:
        """A trial with its prediction, and the fields by which the ledger finds it."""
        candidate, looked, step = choice.candidate, self.found.looked, self._step
        if record.replayed_expected_ns is not None and record.replayed_saving_ns is not None:
            low, high = record.replayed_saving_ns
            candidate = replace(candidate, expected_ns=record.replayed_expected_ns, low_ns=low, high_ns=high)
            choice, step = self._chooser.choice(candidate, record.step_ns), record.step_ns
        both = choice.low is not None and choice.high is not None
        whole = candidate.low_ns is not None and candidate.high_ns is not None
        return replace(
            record,
            code=candidate.code,
            expected_ns=choice.expected,
            predicted_saving_ns=(choice.low, choice.high) if both else None,
            replayed_expected_ns=candidate.expected_ns,
            replayed_saving_ns=(candidate.low_ns, candidate.high_ns) if whole else None,
            step_ns=step,
            limit_s=self._options.limit_s,
            fingerprint=looked.fingerprint,
            versions=looked.versions,
            date=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        )

    def _judge(self, record: TrialRecord, choice: Choice) -> None:
        candidate, found = choice.candidate, self.found
        if candidate.leaves_out:
            self._left_out(record, choice)
            return
        helped = record.verdict == "helped" and record.timing is not None
        why = _because(choice, self._step, self._fits)
        found.order.append(f"{record.way}: {why}; {words(record)}{', kept' if helped else ''}")
        tried = self._tried[candidate.way] = TrialOutcome(record, choice.expected, self._step)
        if not helped:
            self._chooser.refuse(candidate.way, tried)
            if candidate.members:
                self._chooser.split(candidate)
            return
        if choice.instead_of:
            self._chooser.refuse(choice.instead_of, self._tried[choice.instead_of])
        members = [member for member in found.looked.candidates if member.way in candidate.members]
        found.kept = [other for other in found.kept if other.way != choice.instead_of] + (members or [candidate])
        found.keep(record)
        if members:
            self._tried |= {member.way: TrialOutcome(record, member.expected_ns, self._step) for member in members}
            self._chooser.doubt(sets.may_not_pay(candidate, self._step or 0.0))
        self._tell.about = f"with {candidate.way}"
        self._look_again(candidate)

    def _left_out(self, record: TrialRecord, choice: Choice) -> None:
        """Drop a kept way if the step without it is faster, or about as fast; else keep it."""
        found, way = self.found, choice.candidate.leaves_out
        goes = record.verdict == "helped" or (
            record.verdict == "no_change" and ratio(record) > 1.0 - LEAST_SAVING_SHARE
        )
        outcome = "it is left out" if goes else "it stays"
        found.order.append(f"{record.way}: what it adds to the others may not pay; {words(record)}, {outcome}")
        if not goes:
            return
        self._chooser.refuse(way, self._tried[way])
        found.kept = [other for other in found.kept if other.way != way]
        found.keep(record)
        self._look_again(choice.candidate)

    def _look_again(self, candidate: Candidate) -> None:
        """Diagnose the step with the kept ways, of which `candidate` was kept last."""
        found, spending = self.found, self._spending
        found.fresh_look = False
        room = spending.left - spending.joined(found.kept, (found.before.step_ns or 0.0) / 1e9)
        if spending.look(found.kept) > room:
            found.notes.append(f"the step with {candidate.way} was not diagnosed again: the budget was spent")
            return
        try:
            found.looked = self._bench.look([member.way for member in found.kept], room, spending.spent)
        except (ProcessDied, UsageError) as died:
            found.notes.append(f"the step with {candidate.way} could not be diagnosed again ({died}): "
                               "later ways were predicted from the step before it")  # fmt: skip
            return
        found.fresh_look = True
        spending.costs.looked(found.looked.seconds)
        found.notes += [note for note in found.looked.notes if note not in (*found.before.notes, *found.notes)]


@dataclass(frozen=True)
class Turn:
    """The seconds that a trial needs, those reserved for what comes after it, and those that it may take."""

    needs: float
    after: float
    within: float

    @property
    def fits(self) -> bool:
        """Whether there is time for it."""
        return 0 < self.needs <= self.within or (not self.needs and self.within > 0)


def _because(choice: Choice, step: float | None, fits: str = "") -> str:
    """Why a way is tried now. `fits`: words that say that ways with larger predictions take too long."""
    if choice.expected is None:
        return "nothing predicts it, and what could be predicted was tried"
    share = f" ({units.percent(choice.expected / step)})" if step and choice.expected >= 0 else ""
    instead = f", in place of {choice.instead_of}" if choice.instead_of else ""
    if choice.candidate.members:
        return f"the set that is predicted to save the most{fits}, {units.duration(choice.expected)}{share}"
    if choice.candidate.work != 1.0:
        return f"predicted {units.duration(choice.expected)}{share} for the same work, last: the step gets no shorter"
    if choice.candidate.slow:
        return f"predicted {units.duration(choice.expected)}{share}{instead}; late, because it compiles for minutes"
    return f"the largest prediction{fits}, {units.duration(choice.expected)}{share}{instead}"


def _step_of(trial: TrialRecord) -> float:
    """The time of a trial's original step, in ns; 0 where it was not timed."""
    return trial.timing.before_ns if trial.timing is not None else trial.step_ns or 0.0
