"""Which way is tried next, and why each of the others is not. Nothing here runs a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gobrrr import units
from gobrrr.model.treated import TrialRecord
from gobrrr.treatments.framework.together import ALTERNATIVES
from gobrrr.trials import sets
from gobrrr.trials.candidate import LEAST_SHARE, Candidate
from gobrrr.trials.candidates import Looked
from gobrrr.trials.ledger import Ledger, calibrated

BUDGET_S = 300.0
SECONDS_SHARE, SECONDS_STEPS, SECONDS = 0.1, 100, (4.0, 30.0)
"""What the timing of one trial may take: a share of the budget or so many steps, within these ends in seconds."""
LEAST_STEPS = 40
"""A trial of a slow step is given the time of so many: with less the rounds are too few to say anything."""

NOT_NAMED = "left out by --only"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may ask for. `only` and `without` name ways or treatments; `seconds` None: by the budget.

    `limit_s`: seconds of silence after which a trial is ended; None: what the process that runs it takes for a hang.
    """

    budget_s: float = BUDGET_S
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    again: bool = False
    dry_run: bool = False
    seconds: float | None = None
    limit_s: float | None = None

    def trial_s(self, step_ns: float | None) -> float:
        """What the timing of one trial may take, of a step that takes so long."""
        step = (step_ns or 0.0) / 1e9
        most = max(SECONDS[1], LEAST_STEPS * step)
        return self.seconds or min(max(SECONDS_SHARE * self.budget_s, SECONDS_STEPS * step, SECONDS[0]), most)


@dataclass(frozen=True)
class Choice:
    """A way to try next: with what it is predicted to save, and the kept way that it would stand in place of."""

    candidate: Candidate
    expected: float | None
    low: float | None
    high: float | None
    instead_of: str = ""


@dataclass(frozen=True)
class Tried:
    """A trial of this run, or one of the ledger that stood for it, with what this run predicted of it, ns of `step`."""

    record: TrialRecord
    expected: float | None
    step: float | None


@dataclass
class Found:
    """What a search has found so far; complete at any moment.

    `measured`: the step as it was and with all that is kept, ns per unit of work, each as it was timed in turns with
    another; None where nothing is kept. `faster`: the one over the other, of one trial or, of several one upon the
    other, multiplied: a host that is slower for a while is slower for both arms of a trial. `apart`: it is of several.
    `needs_s`: the budget that one trial needs, where this one had room for none.
    """

    before: Looked
    looked: Looked
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
        """The trial of what was kept last, which is in `kept` by now: it measured all of that."""
        assert record.timing is not None  # nothing helps that was not timed
        before = self.measured[0] if self.measured is not None else record.timing.before_ns
        self.measured = before, record.timing.after_ns / math.prod(candidate.work for candidate in self.kept)
        self.apart = self.faster is not None
        self.faster = (self.faster or 1.0) * ratio(record)


def ratio(record: TrialRecord) -> float:
    """How many times as fast a trial's step became, per unit of work."""
    assert record.timing is not None
    return record.timing.before_ns / record.timing.after_ns * record.work


class Chooser:
    """Says which way is next, of what a search has found so far."""

    def __init__(self, found: Found, options: Options, ledger: Ledger | None) -> None:
        self._found, self._options, self._ledger = found, options, ledger
        self._refused: dict[str, Tried] = {}
        self._unapplied: dict[str, str] = {}
        self._taken: set[tuple[frozenset[str], str]] = set()
        self._parts: list[Candidate] = []
        self._in_doubt: list[str] = []

    def take(self, choice: Choice) -> None:
        """A way has its turn: on top of the same kept ways it has no other, whatever comes of it."""
        self._taken.add((frozenset(self.base(choice)), choice.candidate.way))

    def refuse(self, way: str, tried: Tried) -> None:
        """A way that was tried and is not kept."""
        self._refused[way] = tried

    def unapplied(self, way: str, why: str) -> None:
        """A way that turned out not to apply to this workload has no other turn."""
        self._unapplied[way] = why

    def split(self, candidate: Candidate, unfit: str = "") -> None:
        """A set that failed: what is left of it without the member that can't be applied, else its halves."""
        candidates = self._found.looked.candidates
        left = sets.without(candidate, unfit, candidates) if unfit else None
        self._parts += sets.halves(candidate, candidates) if not unfit else [left] if left is not None else []

    def doubt(self, ways: Sequence[str]) -> None:
        """Kept members of a set that may not pay: the step is tried without each."""
        self._in_doubt += ways

    def base(self, choice: Choice) -> list[str]:
        """The kept ways that a way is tried against: on top of them, or in the place of the one of its treatment."""
        return [kept.way for kept in self._found.kept]

    def ranked(self) -> list[Choice]:
        """What could be tried now, in the order of it; why the others are left goes to `found.left`."""
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
        """Sets that could be tried now: none of whose ways was kept, refused or left out by the user."""
        found = []
        for candidate in (*self._found.looked.sets, *self._parts):
            choice = self.choice(candidate)
            members = [it for it in self._found.looked.candidates if it.way in candidate.members]
            free = len(members) == len(candidate.members) and not any(
                it.way in self._refused or it in self._found.kept or self._out(it) or self._conflict(it, "")
                for it in members
            )
            if free and (frozenset(self.base(choice)), candidate.way) not in self._taken:
                found.append(choice)
        return found

    def _less(self) -> list[Choice]:
        """The step without a kept way that may not pay, one at a time."""
        kept = self._found.kept
        less = [
            sets.leaving_out(candidate, kept) for candidate in kept if candidate.way in self._in_doubt and len(kept) > 1
        ]
        found = [Choice(candidate, None, None, None, candidate.leaves_out) for candidate in less]
        return [choice for choice in found if (frozenset(self.base(choice)), choice.candidate.way) not in self._taken]

    def _out(self, candidate: Candidate) -> str:
        """Why the user or the workload leaves a way out; "" where it is not."""
        names, options = {candidate.way, candidate.treatment}, self._options
        if candidate.way in self._unapplied:
            return self._unapplied[candidate.way]
        if names & set(options.without):
            return "left out by --without"
        return NOT_NAMED if options.only and not names & set(options.only) else ""

    def nothing_left(self) -> str:
        """Why the search is over where nothing is left to try."""
        found, only = self._found, self._options.only
        if not found.left and not found.trials:
            return "no way of any treatment fits this workload"
        if only and not found.trials:
            left = {way: why for way, why in found.left.items() if why != NOT_NAMED and named(way, only)}
            whys = "; ".join(f"{way}: {why}" for way, why in left.items())
            return f"nothing that --only names can be tried here{': ' if whys else ''}{whys}"
        if only:
            return "all that --only names was tried or can't be"
        return f"nothing is left that is predicted to save {units.percent(LEAST_SHARE)} of the step"

    def choice(self, candidate: Candidate, step_ns: float | None = None) -> Choice:
        """A way with its prediction and what the ledger says of such ones. `step_ns`: the step that it is predicted
        for; None: the one that was looked at."""
        rivals = [kept.way for kept in self._found.kept if kept.treatment == candidate.treatment]
        instead = rivals[0] if len(rivals) == 1 else ""
        if candidate.expected_ns is None or candidate.low_ns is None or candidate.high_ns is None:
            return Choice(candidate, None, None, None, instead)
        looked, looked_anew = self._found.looked, self._found.fresh_look
        step = step_ns or looked.step_ns
        errors: list[float] = []
        if self._ledger is not None and looked.versions is not None:
            errors = self._ledger.errors(candidate.treatment, looked.versions.device)
        told = candidate.expected_ns, candidate.low_ns, candidate.high_ns
        if instead and not looked_anew:
            told = self._beyond(instead, told)
        return Choice(candidate, *(told if step is None else calibrated(errors, *told, step)), instead)

    def _beyond(self, instead_of: str, told: tuple[float, float, float]) -> tuple[float, float, float]:
        """What is predicted beyond a kept way, of a prediction for the step before it, which has both in it."""
        kept = next(candidate for candidate in self._found.kept if candidate.way == instead_of)
        of = (kept.expected_ns or 0.0, kept.high_ns or 0.0, kept.low_ns or 0.0)
        expected, low, high = (mine - its for mine, its in zip(told, of, strict=True))
        return expected, min(low, expected), max(high, expected)

    @property
    def _least(self) -> float:
        return LEAST_SHARE * (self._found.looked.step_ns or 0.0)

    def _why_not(self, choice: Choice) -> str:
        """Why a way is not tried now; "" where it is."""
        candidate = choice.candidate
        if out := self._out(candidate):
            return out
        forced = bool(self._options.only)
        if (frozenset(self.base(choice)), candidate.way) in self._taken:
            return "was tried"
        if candidate.way in self._refused:
            return self._still_refused(choice)
        if against := self._conflict(candidate, choice.instead_of):
            return f"can't stand beside {against}, which was kept"
        if candidate.why_not and not forced:
            return candidate.why_not
        if (better := self._for_the_same_work(candidate)) and not forced:
            return f"{better}, which was kept, does what it would"
        if choice.high is not None and choice.high < self._least and not forced:
            most = max(choice.high, 0.0)
            return f"predicted to save at most {units.duration(most)}" if most > 0 else "predicted to save nothing"
        if choice.instead_of:
            return self._no_better(choice)
        return self._as_refused(choice) if not forced else ""

    def _still_refused(self, choice: Choice) -> str:
        """A way that was tried has another turn only where this run predicts more for it than it did then."""
        before, step = self._refused[choice.candidate.way], self._found.looked.step_ns
        if before.record.verdict not in ("no_change", "hurt") or choice.expected is None or before.expected is None:
            return "was tried"
        if not before.step or not step:
            return "was tried"
        grown = choice.expected / step - before.expected / before.step
        return "" if grown > LEAST_SHARE and not choice.instead_of else "was tried"

    def _conflict(self, candidate: Candidate, instead_of: str) -> str:
        """The kept way that this one can't be kept together with."""
        for kept in self._found.kept:
            if kept.way == instead_of:
                continue
            if {kept.way, kept.treatment} & set(candidate.conflicts) or {candidate.way, candidate.treatment} & set(
                kept.conflicts
            ):
                return kept.way
        return ""

    def _for_the_same_work(self, candidate: Candidate) -> str:
        """The kept way that leaves this one nothing to change; "" where there is none."""
        return next(
            (kept.way for kept in self._found.kept if (kept.treatment, candidate.treatment) in ALTERNATIVES), ""
        )

    def _no_better(self, choice: Choice) -> str:
        """Another way of a treatment that is kept: tried where, beyond that one, it is predicted to save more."""
        kept = next(candidate for candidate in self._found.kept if candidate.way == choice.instead_of)
        why = f"another way of {choice.instead_of}, which was kept, and predicted to be no better"
        if choice.expected is None or choice.candidate.as_if == kept.as_if:
            return why
        return "" if choice.expected > self._least else why

    def _as_refused(self, choice: Choice) -> str:
        """Another way that is predicted the same as one that was measured to save nothing, or too little to be seen."""
        candidate = choice.candidate
        for way, tried in self._refused.items():
            record = tried.record
            if record.treatment != candidate.treatment or record.verdict == "unsafe" or record.timing is None:
                continue
            was = next((it for it in self._found.looked.candidates if it.way == way), None)
            if was is None or was.as_if != candidate.as_if or choice.expected is None or tried.expected is None:
                continue
            if choice.expected <= tried.expected + self._least:
                return f"predicted the same as {way}, which {words(record)}"
        return ""


def named(way: str, only: Sequence[str]) -> bool:
    """Whether a way is asked for, by its own name or its treatment's."""
    return way in only or way.partition(":")[0] in only


def _turn(choice: Choice) -> tuple[bool, bool, bool, bool, float, float]:
    """Sets come first, then what is predicted, and of that what makes a step shorter: more work in it only hides.

    Leaving out what may not pay saves nothing but what is kept in vain, and comes after what is predicted to save more
    than that. What compiles for minutes comes after what does not: the step that it is tried on is the shorter by then.
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
    """A verdict in words that follow a name."""
    return {
        "helped": "helped", "no_change": "changed nothing", "hurt": "hurt",
        "unsafe": "was refused: the numbers differ", "inconclusive": "could not be judged",
    }[trial.verdict]  # fmt: skip
