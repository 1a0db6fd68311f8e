"""A diagnosed workload -> the ways that can be tried on it, each with what the replay predicts it to save.

No torch is imported here: what a process that runs no step needs to know of a way is in `Candidate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from gobrrr.analysis.replay.predictive import BATCH, Replayed, predicted
from gobrrr.doors import pipeline
from gobrrr.guarded import Parts
from gobrrr.model.diagnosis import Diagnosis, Finding, Prescription
from gobrrr.model.treated import Advised, Untried, Versions
from gobrrr.model.workload import Workload
from gobrrr.report.advice import worth_doing
from gobrrr.treatments.framework.asking import word_of
from gobrrr.treatments.framework.base import Treatment, catalogue
from gobrrr.treatments.framework.reaching import in_its_words
from gobrrr.treatments.framework.seats import seats
from gobrrr.treatments.framework.together import Combiner, Saving
from gobrrr.treatments.framework.way import Unfit, Way
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.sets import best_sets

NOTHING_CHANGED = "nothing that was found in this step is changed by it"


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was diagnosed with what is kept, and what could be tried next. `step_ns` None: it is not known.

    `sets`: candidates of several ways each, the best first. `seconds`: what that took, beside what is measured once on
    a machine. `once_s`: what that would have taken, where there was no time for it.
    """

    diagnosis: Diagnosis
    step_ns: float | None
    candidates: tuple[Candidate, ...]
    sets: tuple[Candidate, ...] = ()
    unfit: tuple[Untried, ...] = ()
    advice: tuple[Advised, ...] = ()
    fingerprint: str = ""
    versions: Versions | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    once_s: float = 0.0


def ways_of(workload: Workload, treatments: Iterable[Treatment] | None = None) -> tuple[list[Way], list[Unfit]]:
    """All ways of all treatments: those that fit a workload, and the others with why they don't."""
    fit: list[Way] = []
    unfit: list[Unfit] = []
    for treatment in catalogue() if treatments is None else treatments:
        if treatment.ways is None:
            continue
        try:
            found = list(treatment.ways(workload))
        except Exception as error:  # one treatment that can't read a workload must not end the others
            unfit.append(Unfit(treatment.name, f"its ways can't be told for this workload: {_line(error)}"))
            continue
        fit += [replace(way, code=in_its_words(workload, way.code)) for way in found if isinstance(way, Way)]
        unfit += [way for way in found if isinstance(way, Unfit)]
    return fit, unfit


def candidates_of(
    examined: pipeline.Examined,
    ways: Sequence[Way],
    kept: Sequence[Way] = (),
    basis: Basis | None = None,
    seen: Diagnosis | None = None,
    predictor: Predictor | None = None,
) -> tuple[list[Candidate], list[str]]:
    """Each way with its prediction for an examined step that has `kept` in it, and notes on how they were made.

    The evidence is read and planned once; each set of treatments then costs one replay. `basis` is of the step as it
    was: a way that this step says nothing of is predicted by what it adds there to what is kept, and where a graph is
    kept, which hides the step's operations, every way is but those of what stays beside it. `seen`: the last diagnosis
    that showed them, by which it is told what isn't worth a trial; None: this one. `predictor`: what `predictor_of`
    makes of the examined step and the ways, where that is there already.
    """
    predictor = predictor or predictor_of(examined, ways)
    hidden = any(hides(one) for one in kept)
    step = step_of(examined.diagnosis)
    made, other = [], False
    for way in ways:
        told = basis is None or not hidden or set(way.as_if) <= BESIDE
        found = predictor.saving(way.as_if, way.work) if told else None
        if found is None and basis is not None and way.as_if and step is not None:
            found = basis.beyond(kept, way, step)
            other = other or found is not None
        as_if = _telling(way.as_if, predictor, *([basis.predictor] if basis is not None else []))
        made.append(_candidate(way, as_if, found, seen or examined.diagnosis))
    notes = [*predictor.notes, *([FROM_BASIS] if other else [])]
    return made, notes


def _telling(as_if: Sequence[str], *predictors: Predictor) -> tuple[str, ...]:
    """The names that predict a way, less those of what is never applied alone and does nothing in this step: without
    them the way is known to be predicted the same as another."""
    alone = {treatment.name for treatment in catalogue() if treatment.ways is not None}
    return tuple(
        name for name in as_if if word_of(name) in alone or any(predictor.has(name) for predictor in predictors)
    )


BESIDE = frozenset({"fused-optimizer", "foreach", "dataloader-workers", "prefetch-pinned"})
"""Treatments of what stays outside a graph of the model: where the step with the graph in it still shows their fault,
it says more of them than the step as it was."""

FROM_BASIS = (
    "the profile of the step with the kept ways says nothing of some other ways: their predictions are made from the "
    "step as it was"
)


def hides(way: Way) -> bool:
    """Whether a profile of the step with a way says little of its operations: they are launched as a graph."""
    return any(word_of(name) == "cuda-graph" for name in way.as_if)


class Basis:
    """The step as it was, by which ways are predicted on top of others."""

    def __init__(
        self, examined: pipeline.Examined, ways: Sequence[Way], predictor: Predictor | None = None
    ) -> None:  # fmt: skip
        self.predictor = predictor or predictor_of(examined, ways)
        self._step = step_of(examined.diagnosis)

    def beyond(self, kept: Sequence[Way], way: Way, step_ns: float) -> Saving | None:
        """What a way adds to those that are kept, of a step that takes `step_ns` with them; None where nothing is known
        of it. In the place of another way of its treatment it adds what it saves beyond that one."""
        others = [one for one in kept if one.treatment != way.treatment]
        before, own, both = self._replayed(kept), self._replayed([way]), self._replayed([*others, way])
        if own is None or both is None or (before is not None and before.expected >= 1.0):
            return None
        there = (before.expected, before.low, before.high) if before is not None else (0.0, 0.0, 0.0)
        ends = list(zip((both.expected, both.low, both.high), there, strict=True))
        # each end is of what that end leaves of the step: a graph that saves the least leaves the most to what follows
        added = [(one - other) / (1.0 - other) for one, other in ends if other < 1.0]
        most = 1.0 if before is None else (both.touched - before.expected) / (1.0 - before.expected)
        low, high = min(added), max(added)
        touched = min(max(most, high, 0.0), own.touched if own.mechanism == BATCH else 1.0)
        told = predicted(replace(own, expected=added[0], low=low, high=high, touched=touched))
        return step_ns * told[0], step_ns * told[1], step_ns * told[2]

    def sets(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The sets that are predicted to save the most of the step as it was; none where that is no replay's word."""
        if self._step is None or not isinstance(self.predictor, _Replayed):
            return []
        return best_sets(candidates, self.predictor.saving, self._step)

    def _replayed(self, ways: Sequence[Way]) -> Replayed | None:
        """The replay's own answer; None where nothing is known of them, or kept ways change nothing in it."""
        return self.predictor.replayed(list(dict.fromkeys(name for way in ways for name in way.as_if)))


def _candidate(way: Way, as_if: tuple[str, ...], found: Saving | None, diagnosis: Diagnosis) -> Candidate:
    common = Candidate(
        way=way.name, treatment=way.treatment, code=way.code, rank=way.rank, as_if=as_if,
        conflicts=tuple(sorted(way.conflicts)), fresh=way.fresh, compiles=way.compiles, slow=way.slow,
        work=way.work,
    )  # fmt: skip
    if not way.as_if:
        why = way.worth(diagnosis) if way.worth is not None else ""
        return msgspec.structs.replace(common, unpredicted=True, why_not=why)
    if found is None:
        return msgspec.structs.replace(common, unpredicted=True, why_not=NOTHING_CHANGED)
    expected, low, high = found
    return msgspec.structs.replace(common, expected_ns=expected, low_ns=low, high_ns=high)


class _Replayed:
    """Predictions by replaying the step's graph with the plans of treatments."""

    def __init__(self, examined: pipeline.Examined, names: Iterable[str]) -> None:
        self._parts = Parts()
        known = {treatment.name for treatment in catalogue()}
        planned = seats(examined.ranks[:1], [name for name in names if word_of(name) in known], self._parts)
        self._combiner = Combiner(planned, examined.diagnosis.unprofiled_wall_ns)
        self._known: dict[frozenset[str], Saving | None] = {}

    @property
    def notes(self) -> list[str]:
        """What could not be predicted."""
        return [f"{name} {said}" for name, said in self._parts.failed.items()]

    def has(self, name: str) -> bool:
        """Whether a treatment has a plan in this step."""
        return self._combiner.seats[0].has(name)

    def saving(self, names: Sequence[str], work: float = 1.0) -> Saving | None:
        """None where no treatment of `names` has a plan in this step, which says itself of how much `work` it is."""
        planned = frozenset(name for name in names if self.has(name))
        if not planned:
            return None
        if planned not in self._known:
            mine = [name for name in names if name in planned]
            self._known[planned] = self._parts.make(" + ".join(mine), lambda: self._combiner.foretold(mine), None)
        return self._known[planned]

    def replayed(self, names: Sequence[str], step_ns: float | None = None) -> Replayed | None:
        """The replay's own answer, for who fits what lies beside it; None as for `saving`. `step_ns`: what the step
        takes, where the host has another speed than when it was looked at."""
        mine = [name for name in names if self.has(name)]

        def made() -> Replayed:
            now = self._combiner if step_ns is None else self._combiner.of_step(step_ns)
            return now.replayed(mine)

        return self._parts.make(" + ".join(mine), made, None) if mine else None


class _Prescribed:
    """Where the step can't be replayed: from nothing to all that is at stake, as the prescriptions say."""

    def __init__(self, diagnosis: Diagnosis, doubt: str | None) -> None:
        self._prescriptions = diagnosis.prescriptions
        self._step = step_of(diagnosis) or float("inf")
        why = f" ({doubt})" if doubt else ""
        self.notes = [f"the step can't be replayed{why}: ways are tried by what the findings cost, the middle of it"]

    def has(self, name: str) -> bool:
        """Whether something prescribes a treatment."""
        return any(prescription.treatment == word_of(name) for prescription in self._prescriptions)

    def saving(self, names: Sequence[str], work: float = 1.0) -> Saving | None:
        """None where nothing prescribes a treatment of `names`."""
        asked_for = {word_of(name) for name in names}
        mine = [prescription for prescription in self._prescriptions if prescription.treatment in asked_for]
        if not mine:
            return None
        low = max(prescription.predicted_saving_ns[0] for prescription in mine)
        high = max(min(sum(prescription.predicted_saving_ns[1] for prescription in mine), self._step), low)
        if work > 1.0:  # the step itself gets no shorter
            low, high = (min(one, self._step * (1 - 1 / work)) for one in (low, high))
        return (low + high) / 2, low, high

    def replayed(self, names: Sequence[str], step_ns: float | None = None) -> None:
        """None: nothing is replayed."""


Predictor = _Replayed | _Prescribed


def predictor_of(examined: pipeline.Examined, ways: Sequence[Way]) -> Predictor:
    """What predicts sets of treatments of an examined step."""
    evidence = examined.evidence
    if evidence is None or not evidence.replayable:
        return _Prescribed(examined.diagnosis, examined.lead.doubt)
    return _Replayed(examined, dict.fromkeys(name for way in ways for name in way.as_if))


def step_of(diagnosis: Diagnosis) -> float | None:
    """The step's time without the profiler where that is known, else under it."""
    return diagnosis.unprofiled_wall_ns.value or diagnosis.wall_ns


def advice_of(diagnosis: Diagnosis, ways: Sequence[Way]) -> list[Advised]:
    """The prescriptions that no way can carry out here: what the user's own source has to change."""
    can = {way.treatment for way in ways}
    codes = {treatment.name: treatment.code_to_paste for treatment in catalogue()}
    by_code = {finding.code: finding for finding in diagnosis.findings}
    left = [prescription for prescription in worth_doing(diagnosis) if prescription.treatment not in can]
    return [
        _advised(prescription, by_code.get(prescription.finding), codes.get(prescription.treatment, ""))
        for prescription in left
    ]


def _advised(prescription: Prescription, finding: Finding | None, code: str) -> Advised:
    places = finding.where if finding is not None else []
    where = next((place.source for place in places if place.source), None)
    return Advised(
        treatment=prescription.treatment,
        finding=prescription.finding,
        where=where or next((place.op for place in places if place.op), "") or "",
        how=prescription.how,
        code=code,
        predicted_saving_ns=prescription.predicted_saving_ns,
        mends=prescription.mends,
    )


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error).strip() else ''}".rstrip(": ")
