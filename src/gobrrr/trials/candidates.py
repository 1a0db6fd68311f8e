"""A diagnosed workload -> the ways that can be tried on it, each with the saving that the replay predicts.

Imports no torch: `Candidate` holds what a process that runs no steps needs to know of a way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from gobrrr.analysis.replay.predictive import BATCH_MECHANISM, ReplayedSaving, predicted
from gobrrr.doors import pipeline
from gobrrr.guarded import GuardedParts
from gobrrr.model.diagnosis import Diagnosis, Finding, Prescription
from gobrrr.model.treated import Advised, Untried, Versions
from gobrrr.model.workload import Workload
from gobrrr.report.advice import worth_doing
from gobrrr.treatments.framework.asking import word_of
from gobrrr.treatments.framework.base import Treatment, catalogue
from gobrrr.treatments.framework.reaching import in_its_words
from gobrrr.treatments.framework.seats import seats
from gobrrr.treatments.framework.together import Combiner, Saving
from gobrrr.treatments.framework.way import TreatmentWay, UnfitWay, error_line
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.sets import best_sets

NOTHING_CHANGED = "it changes nothing that was found in this step"


class StepOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The diagnosis of a step with the kept ways, and what could be tried next. `step_ns` None: not known.

    `sets`: candidates of several ways each, the best first. `seconds`: the time that looking took, without what is
    measured once per machine. `once_s`: the time for that measurement where the budget had no room for it.
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


def ways_of(
    workload: Workload, treatments: Iterable[Treatment] | None = None
) -> tuple[list[TreatmentWay], list[UnfitWay]]:
    """All ways of all treatments: those that fit a workload, and the others with the reason."""
    fit: list[TreatmentWay] = []
    unfit: list[UnfitWay] = []
    for treatment in catalogue() if treatments is None else treatments:
        if treatment.ways is None:
            continue
        try:
            found = list(treatment.ways(workload))
        except Exception as error:  # one treatment that fails must not end the others
            unfit.append(UnfitWay(treatment.name, f"gobrrr could not check it on this workload: {error_line(error)}"))
            continue
        fit += [replace(way, code=in_its_words(workload, way.code)) for way in found if isinstance(way, TreatmentWay)]
        unfit += [way for way in found if isinstance(way, UnfitWay)]
    return fit, unfit


def candidates_of(
    examined: pipeline.Examined,
    ways: Sequence[TreatmentWay],
    kept: Sequence[TreatmentWay] = (),
    basis: Basis | None = None,
    seen: Diagnosis | None = None,
    predictor: Predictor | None = None,
) -> tuple[list[Candidate], list[str]]:
    """Each way with its prediction for an examined step that has `kept` applied, and notes on the predictions.

    Evidence and plans are made once; each set of treatments then costs one replay. `basis`: the step as it was, which
    predicts a way that this step says nothing of, by what the way adds there to the kept ways. A kept graph hides the
    step's operations: then the basis predicts every way except those in BESIDE. `seen`: the last diagnosis that shows
    operations, which decides what isn't worth a trial; None: this one. `predictor`: that of the examined step and the
    ways, where it exists already.
    """
    predictor = predictor or predictor_of(examined, ways)
    hidden = any(hides(kept_way) for kept_way in kept)
    step = step_of(examined.diagnosis)
    candidates, other = [], False
    for way in ways:
        shown = basis is None or not hidden or set(way.as_if) <= OUTSIDE_GRAPH
        found = predictor.saving(way.as_if, way.work) if shown else None
        if found is None and basis is not None and way.as_if and step is not None:
            found = basis.beyond(kept, way, step)
            other = other or found is not None
        as_if = _telling(way.as_if, predictor, *([basis.predictor] if basis is not None else []))
        candidates.append(_candidate(way, as_if, found, seen or examined.diagnosis))
    notes = [*predictor.notes, *([FROM_BASIS] if other else [])]
    return candidates, notes


def _telling(as_if: Sequence[str], *predictors: Predictor) -> tuple[str, ...]:
    """The names that predict a way, without those that are never applied alone and change nothing in this step. Ways
    with the same names left are predicted the same."""
    alone = {treatment.name for treatment in catalogue() if treatment.ways is not None}
    return tuple(
        name for name in as_if if word_of(name) in alone or any(predictor.has(name) for predictor in predictors)
    )


OUTSIDE_GRAPH = frozenset({"fused-optimizer", "foreach", "dataloader-workers", "prefetch-pinned"})
"""Treatments of parts that stay outside a graph of the model: the step with the graph still shows these parts, and
predicts them better than the step as it was."""

FROM_BASIS = (
    "the profile of the step with the kept ways says nothing about some other ways: they are predicted from the step "
    "as it was"
)


def hides(way: TreatmentWay) -> bool:
    """Whether a way hides the step's operations from a profile, because a graph launches them."""
    return any(word_of(name) == "cuda-graph" for name in way.as_if)


class Basis:
    """The step as it was, from which ways are predicted on top of other ways."""

    def __init__(
        self, examined: pipeline.Examined, ways: Sequence[TreatmentWay], predictor: Predictor | None = None
    ) -> None:  # fmt: skip
        self.predictor = predictor or predictor_of(examined, ways)
        self._step = step_of(examined.diagnosis)

    def beyond(self, kept: Sequence[TreatmentWay], way: TreatmentWay, step_ns: float) -> Saving | None:
        """What a way adds to the kept ways, for a step that takes `step_ns` with them; None where nothing is known of
        it. In place of another way of its treatment it adds what it saves beyond that way."""
        others = [kept_way for kept_way in kept if kept_way.treatment != way.treatment]
        before, own, both = self._replayed(kept), self._replayed([way]), self._replayed([*others, way])
        if own is None or both is None or (before is not None and before.expected >= 1.0):
            return None
        present = (before.expected, before.low, before.high) if before is not None else (0.0, 0.0, 0.0)
        ends = list(zip((both.expected, both.low, both.high), present, strict=True))
        # each end is a share of what that end of the kept ways leaves of the step
        added = [(end - other) / (1.0 - other) for end, other in ends if other < 1.0]
        most = 1.0 if before is None else (both.touched - before.expected) / (1.0 - before.expected)
        low, high = min(added), max(added)
        touched = min(max(most, high, 0.0), own.touched if own.mechanism == BATCH_MECHANISM else 1.0)
        saving = predicted(replace(own, expected=added[0], low=low, high=high, touched=touched))
        return step_ns * saving[0], step_ns * saving[1], step_ns * saving[2]

    def sets(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The sets with the largest predicted savings of the step as it was; none where the step can't be replayed."""
        if self._step is None or not isinstance(self.predictor, _Replayed):
            return []
        return best_sets(candidates, self.predictor.saving, self._step)

    def _replayed(self, ways: Sequence[TreatmentWay]) -> ReplayedSaving | None:
        """The replay's own prediction; None where these ways change nothing in it."""
        return self.predictor.replayed(list(dict.fromkeys(name for way in ways for name in way.as_if)))


def _candidate(way: TreatmentWay, as_if: tuple[str, ...], found: Saving | None, diagnosis: Diagnosis) -> Candidate:
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
        self._parts = GuardedParts()
        treatments = {treatment.name for treatment in catalogue()}
        planned = seats(examined.ranks[:1], [name for name in names if word_of(name) in treatments], self._parts)
        self._combiner = Combiner(planned, examined.diagnosis.unprofiled_wall_ns)
        self._known: dict[frozenset[str], Saving | None] = {}

    @property
    def notes(self) -> list[str]:
        """What failed to be predicted."""
        return [f"{name} {said}" for name, said in self._parts.failed.items()]

    def has(self, name: str) -> bool:
        """Whether a treatment has a plan in this step."""
        return self._combiner.seats[0].has(name)

    def saving(self, names: Sequence[str], work: float = 1.0) -> Saving | None:
        """The saving of the treatments `names`, whose plans include their `work`; None where none has a plan."""
        planned = frozenset(name for name in names if self.has(name))
        if not planned:
            return None
        if planned not in self._known:
            applied = [name for name in names if name in planned]
            self._known[planned] = self._parts.make(" + ".join(applied), lambda: self._combiner.foretold(applied), None)
        return self._known[planned]

    def replayed(self, names: Sequence[str], step_ns: float | None = None) -> ReplayedSaving | None:
        """The replay's own prediction, without fitted corrections; None as for `saving`. `step_ns`: the step's time
        now, where the host's speed has changed since the diagnosis."""
        applied = [name for name in names if self.has(name)]

        def made() -> ReplayedSaving:
            now = self._combiner if step_ns is None else self._combiner.of_step(step_ns)
            return now.replayed(applied)

        return self._parts.make(" + ".join(applied), made, None) if applied else None


class _Prescribed:
    """Predictions where the step can't be replayed: the intervals of the prescriptions."""

    def __init__(self, diagnosis: Diagnosis, doubt: str | None) -> None:
        self._prescriptions = diagnosis.prescriptions
        self._step = step_of(diagnosis) or float("inf")
        why = f" ({doubt})" if doubt else ""
        self.notes = [f"the step can't be replayed{why}: ways are tried in the order of what their findings may cost"]

    def has(self, name: str) -> bool:
        """Whether something prescribes a treatment."""
        return any(prescription.treatment == word_of(name) for prescription in self._prescriptions)

    def saving(self, names: Sequence[str], work: float = 1.0) -> Saving | None:
        """The saving of the treatments `names` by their prescriptions; None without any."""
        asked_for = {word_of(name) for name in names}
        prescriptions = [prescription for prescription in self._prescriptions if prescription.treatment in asked_for]
        if not prescriptions:
            return None
        low = max(prescription.predicted_saving_ns[0] for prescription in prescriptions)
        high = max(min(sum(prescription.predicted_saving_ns[1] for prescription in prescriptions), self._step), low)
        if work > 1.0:  # the step itself gets no shorter
            low, high = (min(end, self._step * (1 - 1 / work)) for end in (low, high))
        return (low + high) / 2, low, high

    def replayed(self, names: Sequence[str], step_ns: float | None = None) -> None:
        """None, because nothing is replayed."""


Predictor = _Replayed | _Prescribed


def predictor_of(examined: pipeline.Examined, ways: Sequence[TreatmentWay]) -> Predictor:
    """The predictor of an examined step."""
    evidence = examined.evidence
    if evidence is None or not evidence.replayable:
        return _Prescribed(examined.diagnosis, examined.lead.doubt)
    return _Replayed(examined, dict.fromkeys(name for way in ways for name in way.as_if))


def step_of(diagnosis: Diagnosis) -> float | None:
    """The step's time without the profiler where that is known, else with it."""
    return diagnosis.unprofiled_wall_ns.value or diagnosis.wall_ns


def advice_of(diagnosis: Diagnosis, ways: Sequence[TreatmentWay]) -> list[Advised]:
    """The prescriptions that no way can apply here: changes to the user's own source."""
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
