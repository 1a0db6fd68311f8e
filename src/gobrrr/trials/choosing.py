"""Chooses the way to try next, and says why each of the others is not tried. Runs no step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gobrrr import units
from gobrrr.model.treated import TrialRecord
from gobrrr.treatments.framework.rank_plans import ALTERNATIVES
from gobrrr.trials import sets
from gobrrr.trials.candidate import LEAST_SAVING_SHARE, Candidate
from gobrrr.trials.candidates import StepOverview
from gobrrr.trials.ledger import Ledger, calibrated

SEARCH_BUDGET_S = 300.0
"""The budget of a search, in seconds, unless the user sets one. Chosen."""
SECONDS_SHARE, SECONDS_STEPS, TRIAL_SECONDS_BOUNDS = 0.1, 100, (4.0, 30.0)
"""The time for one trial's timing: a share of the budget, or the time of so many steps, within these bounds in seconds.
Chosen, not measured."""
LEAST_TRIAL_STEPS = 40
"""A trial of a slow step gets the time of so many steps: with fewer the rounds can't decide."""

NOT_NAMED = "left out by --only"
"""The reason for ways that --only does not name."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The user's options. `only` and `without` name ways or treatments; `seconds` None: by the budget.

    `limit_s`: seconds of silence after which a trial is ended; None: the default of the process that runs it.
    """

    budget_s: float = SEARCH_BUDGET_S
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    again: bool = False
    dry_run: bool = False
    seconds: float | None = None
    limit_s: float | None = None

    def trial_s(self, step_ns: float | None) -> float:
        """The seconds for one trial's timing, for a step of `step_ns`."""
        step = (step_ns or 0.0) / 1e9
        most = max(TRIAL_SECONDS_BOUNDS[1], LEAST_TRIAL_STEPS * step)
        return self.seconds or min(
            max(SECONDS_SHARE * self.budget_s, SECONDS_STEPS * step, TRIAL_SECONDS_BOUNDS[0]), most
        )


@dataclass(frozen=True)
class Choice:
    """A way to try next, its predicted saving, and the kept way that it would replace."""

    candidate: Candidate
    expected: float | None
    low: float | None
    high: float | None
    instead_of: str = ""


@dataclass(frozen=True)
class TrialOutcome:
    """A trial of this run, or of the ledger in its place, with this run's prediction in ns of `step`."""

    record: TrialRecord
    expected: float | None
    step: float | None


@dataclass
class SearchState:
    """What a search has found so far; complete at any moment.

    `measured`: the step as it was and with all kept ways, ns per unit of work, each timed in turns with another arm;
    None where nothing is kept. `faster`: their ratio within one trial, or the product of the ratios of several trials
    on top of each other: a host that is slow for a while is slow for both arms of a trial. `apart`: it is such a
    product. `left`: why each other way was not tried. `needs_s`: the budget that one trial needs, where this budget had
    room for none.
    """

    before: StepOverview
    looked: StepOverview
    kept: list[Candidate] = field(default_factory=list)
    trials: list[TrialRecord] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    measured: tuple[float, float] | None = None
    faster: float | None = None
    apart: bool = False
    together: TrialRecord | None = None
    fresh_look: bool = True
    needs_s: float | None = None

    def keep(self, record: TrialRecord) -> None:
        """Take over the times of the trial that measured all ways in `kept`, after the last one was added."""
        assert record.timing is not None  # only a timed trial can help
        before = self.measured[0] if self.measured is not None else record.timing.before_ns
        self.measured = before, record.timing.after_ns / math.prod(candidate.work for candidate in self.kept)
        self.apart = self.faster is not None
        self.faster = (self.faster or 1.0) * ratio(record)


def ratio(record: TrialRecord) -> float:
    """The speedup of a trial's step, per unit of work."""
    assert record.timing is not None
    return record.timing.before_ns / record.timing.after_ns * record.work


class Chooser:
    """Chooses the next way from what a search has found so far."""

    def __init__(self, found: SearchState, options: SearchOptions, ledger: Ledger | None) -> None:
        self._found, self._options, self._ledger = found, options, ledger
        self._refused: dict[str, TrialOutcome] = {}
        self._unapplied: dict[str, str] = {}
        self._taken: set[tuple[frozenset[str], str]] = set()
        self._parts: list[Candidate] = []
        self._in_doubt: list[str] = []

    def take(self, choice: Choice) -> None:
        """Note that a way is tried now: on top of the same kept ways it is not tried again."""
        self._taken.add((frozenset(self.base(choice)), choice.candidate.way))

    def refuse(self, way: str, tried: TrialOutcome) -> None:
        """Note a way that was tried and is not kept."""
        self._refused[way] = tried

    def unapplied(self, way: str, why: str) -> None:
        """Note a way that turned out not to apply to this workload: it is not tried again."""
        self._unapplied[way] = why

    def split(self, candidate: Candidate, unfit: str = "") -> None:
        """After a set failed, queue the rest of it without the member that can't be applied, else its halves."""
        candidates = self._found.looked.candidates
        left = sets.without(candidate, unfit, candidates) if unfit else None
        self._parts += sets.halves(candidate, candidates) if not unfit else [left] if left is not None else []

    def doubt(self, ways: Sequence[str]) -> None:
        """Note kept members of a set that may not pay: the step is tried without each of them."""
        self._in_doubt += ways

    def base(self, choice: Choice) -> list[str]:
        """The kept ways on top of which a way is tried, including one that it would replace."""
        return [kept.way for kept in self._found.kept]

    def ranked(self) -> list[Choice]:
        """The ways that could be tried now, in order; writes to `found.left` why the others are not."""
        choices = [*self._sets(), *self._less()]
        self._found.left = {untried.way: untried.why for untried in self._found.looked.unfit}
        for candidate in self._found.looked.candidates:
            if any(candidate.way == kept.way for kept in self._found.kept):
                continue
            choice = self.choice(candidate)
            why = self._why_not(choice)
            if not why:
                choices.append(choice)
            elif candidate.way not in self._refused:
                self._found.left[candidate.way] = why
        return sorted(choices, key=_turn)

    def _sets(self) -> list[Choice]:
        """Sets that could be tried now: the user left none of their ways out, and none was kept or refused."""
        found = []
        for candidate in (*self._found.looked.sets, *self._parts):
            choice = self.choice(candidate)
            members = [member for member in self._found.looked.candidates if member.way in candidate.members]
            free = len(members) == len(candidate.members) and not any(
                member.way in self._refused
                or member in self._found.kept
                or self._out(member)
                or self._conflict(member, "")
                for member in members
            )
            if free and (frozenset(self.base(choice)), candidate.way) not in self._taken:
                found.append(choice)
        return found

    def _less(self) -> list[Choice]:
        """Trials of the step without a kept way that may not pay, one at a time."""
        kept = self._found.kept
        less = [
            sets.leaving_out(candidate, kept) for candidate in kept if candidate.way in self._in_doubt and len(kept) > 1
        ]
        found = [Choice(candidate, None, None, None, candidate.leaves_out) for candidate in less]
        return [choice for choice in found if (frozenset(self.base(choice)), choice.candidate.way) not in self._taken]

    def _out(self, candidate: Candidate) -> str:
        """Why a way is left out by the user or does not apply; "" where neither holds."""
        names, options = {candidate.way, candidate.treatment}, self._options
        if candidate.way in self._unapplied:
            return self._unapplied[candidate.way]
        if names & set(options.without):
            return "left out by --without"
        return NOT_NAMED if options.only and not names & set(options.only) else ""

    def nothing_left(self) -> str:
        """Why the search ends when nothing is left to try."""
        found, only = self._found, self._options.only
        if not found.left and not found.trials:
            return "no way of any treatment fits this workload"
        if only and not found.trials:
            left = {way: why for way, why in found.left.items() if why != NOT_NAMED and named(way, only)}
            whys = "; ".join(f"{way}: {why}" for way, why in left.items())
            return f"nothing that --only names can be tried here{': ' if whys else ''}{whys}"
        if only:
            return "everything that --only names was tried or can't be"
        return f"nothing is left that is predicted to save {units.percent(LEAST_SAVING_SHARE)} of the step"

    def choice(self, candidate: Candidate, step_ns: float | None = None) -> Choice:
        """A way with its prediction, calibrated by the ledger's errors. `step_ns`: the step's time that the prediction
        is for; None: as diagnosed."""
        rivals = [kept.way for kept in self._found.kept if kept.treatment == candidate.treatment]
        instead = rivals[0] if len(rivals) == 1 else ""
        if candidate.expected_ns is None or candidate.low_ns is None or candidate.high_ns is None:
            return Choice(candidate, None, None, None, instead)
        looked, looked_anew = self._found.looked, self._found.fresh_look
        step = step_ns or looked.step_ns
        errors: list[float] = []
        if self._ledger is not None and looked.versions is not None:
            errors = self._ledger.errors(candidate.treatment, looked.versions.device)
        saving = candidate.expected_ns, candidate.low_ns, candidate.high_ns
        if instead and not looked_anew:
            saving = self._beyond(instead, saving)
        return Choice(candidate, *(saving if step is None else calibrated(errors, *saving, step)), instead)

    def _beyond(self, instead_of: str, saving: tuple[float, float, float]) -> tuple[float, float, float]:
        """The saving beyond a kept way, from a prediction for the step before that way."""
        kept = next(candidate for candidate in self._found.kept if candidate.way == instead_of)
        of = (kept.expected_ns or 0.0, kept.high_ns or 0.0, kept.low_ns or 0.0)
        expected, low, high = (both - its for both, its in zip(saving, of, strict=True))
        return expected, min(low, expected), max(high, expected)

    @property
    def _least(self) -> float:
        return LEAST_SAVING_SHARE * (self._found.looked.step_ns or 0.0)

    def _why_not(self, choice: Choice) -> str:
        """Why a way is not tried now; "" where it can be."""
        candidate = choice.candidate
        if out := self._out(candidate):
            return out
        forced = bool(self._options.only)
        if (frozenset(self.base(choice)), candidate.way) in self._taken:
            return "was tried"
        if candidate.way in self._refused:
            return self._still_refused(choice)
        if against := self._conflict(candidate, choice.instead_of):
            return f"can't be combined with {against}, which was kept"
        if candidate.why_not and not forced:
            return candidate.why_not
        if (better := self._for_the_same_work(candidate)) and not forced:
            return f"{better}, which was kept, does the same work"
        if choice.high is not None and choice.high < self._least and not forced:
            most = max(choice.high, 0.0)
            return f"predicted to save at most {units.duration(most)}" if most > 0 else "predicted to save nothing"
        if choice.instead_of:
            return self._no_better(choice)
        return self._as_refused(choice) if not forced else ""

    def _still_refused(self, choice: Choice) -> str:
        """Why a refused way is not tried again; "" where the prediction has grown since."""
        before, step = self._refused[choice.candidate.way], self._found.looked.step_ns
        if before.record.verdict not in ("no_change", "hurt") or choice.expected is None or before.expected is None:
            return "was tried"
        if not before.step or not step:
            return "was tried"
        grown = choice.expected / step - before.expected / before.step
        return "" if grown > LEAST_SAVING_SHARE and not choice.instead_of else "was tried"

    def _conflict(self, candidate: Candidate, instead_of: str) -> str:
        """The kept way that this one can't be combined with; "" for none."""
        for kept in self._found.kept:
            if kept.way == instead_of:
                continue
            if {kept.way, kept.treatment} & set(candidate.conflicts) or {candidate.way, candidate.treatment} & set(
                kept.conflicts
            ):
                return kept.way
        return ""

    def _for_the_same_work(self, candidate: Candidate) -> str:
        """The kept way that does this one's work already; "" for none."""
        return next(
            (kept.way for kept in self._found.kept if (kept.treatment, candidate.treatment) in ALTERNATIVES), ""
        )

    def _no_better(self, choice: Choice) -> str:
        """Why another way of a kept treatment is not tried; "" where it is predicted to save more than the kept one."""
        kept = next(candidate for candidate in self._found.kept if candidate.way == choice.instead_of)
        why = f"another way of {choice.instead_of}, which was kept, and predicted to be no better"
        if choice.expected is None or choice.candidate.as_if == kept.as_if:
            return why
        return "" if choice.expected > self._least else why

    def _as_refused(self, choice: Choice) -> str:
        """Why a way is not tried that is predicted the same as a refused one of its treatment; "" otherwise."""
        candidate = choice.candidate
        for way, tried in self._refused.items():
            record = tried.record
            if record.treatment != candidate.treatment or record.verdict == "unsafe" or record.timing is None:
                continue
            was = next((other for other in self._found.looked.candidates if other.way == way), None)
            if was is None or was.as_if != candidate.as_if or choice.expected is None or tried.expected is None:
                continue
            if choice.expected <= tried.expected + self._least:
                return f"predicted the same as {way}, which {words(record)}"
        return ""


def named(way: str, only: Sequence[str]) -> bool:
    """Whether `only` names a way, by its own name or its treatment's."""
    return way in only or way.partition(":")[0] in only


def _turn(choice: Choice) -> tuple[bool, bool, bool, bool, float, float]:
    """The sort key of the order of trials.

    Sets come first, then predicted ways, and among these the ways that make the step shorter before those that do more
    work per step. Trials that leave a way out come where their expected saving, nothing, puts them. Ways that compile
    for minutes come after the others, when the step is shorter.
    """
    candidate = choice.candidate
    unpredicted = choice.expected is None and not candidate.leaves_out
    return (
        not candidate.members,
        unpredicted,
        candidate.work != 1.0,
        candidate.slow,
        -(choice.expected or 0.0),
        -(choice.high or 0.0),
    )


def words(trial: TrialRecord) -> str:
    """A verdict in words that can follow a name."""
    return {
        "helped": "helped", "no_change": "changed nothing", "hurt": "hurt",
        "unsafe": "was refused: the numbers differ", "inconclusive": "could not be judged",
    }[trial.verdict]  # fmt: skip
