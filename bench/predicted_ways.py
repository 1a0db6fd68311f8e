"""What a stored profile's step is predicted to gain by ways that were told for it when it ran. No torch, no GPU.

The same function makes the predictions where the step was run and later, with other code, from the file alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.replay.predictive import ReplayedSaving, predicted
from gobrrr.doors import pipeline
from gobrrr.model.machine import Machine
from gobrrr.model.profile import Profile
from gobrrr.treatments.framework.way import TreatmentWay
from gobrrr.trials.candidates import predictor_of, step_of
from gobrrr.trials.sets import JOINED


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A way that fitted a workload when it ran: what a prediction asks of it
    (gobrrr.treatments.framework.way.TreatmentWay)."""

    name: str
    treatment: str
    numerics: Literal["none", "rounding", "statistics"]
    rank: int = 0
    as_if: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    compiles: bool = False
    slow: bool = False
    work: float = 1.0


class Saving(NamedTuple):
    """ns of a step: expected, at least, at most."""

    expected: float
    low: float
    high: float


class Foretold(NamedTuple):
    """A step and what each set of ways saves of it; None: nothing predicts it, or it changes nothing that was found.

    `replayed`: the same by the replay alone, before what is known of how far it is off. `evidence`: what both were made
    from; None without device work.
    """

    step_ns: float | None
    regime: str
    savings: dict[str, Saving | None]
    replayed: dict[str, ReplayedSaving | None]
    evidence: Evidence | None


def told(way: TreatmentWay) -> Told:
    """What is kept of a way."""
    return Told(
        name=way.name, treatment=way.treatment, numerics=way.numerics, rank=way.rank, as_if=way.as_if,
        conflicts=tuple(sorted(way.conflicts)), compiles=way.compiles, slow=way.slow, work=way.work,
    )  # fmt: skip


def named(names: Sequence[str], ways: dict[str, Told]) -> str:
    """The name of a set: its ways in the order in which they are stacked."""
    return JOINED.join(sorted(names, key=lambda name: (ways[name].rank, name)))


def foretold(
    profile: Profile,
    ways: dict[str, Told],
    sets: Sequence[str],
    machine: Machine | None = None,
    steps: Mapping[str, float] | None = None,
) -> Foretold:
    """The predictions at first sight of the step. `sets` are names as `named` makes them; `machine`: None, as found.
    `steps`: what the step took when each of them was measured, ns; `replayed` is then of the step as it was then."""
    examined = pipeline.examine(profile, on=machine)
    asked = [_joined([ways[name] for name in set_name.split(JOINED)]) for set_name in sets]
    predictor = predictor_of(examined, asked)
    replayed = {way.name: predictor.replayed(way.as_if, (steps or {}).get(way.name)) for way in asked}
    step = step_of(examined.diagnosis)
    savings = {name: _saving(prediction, step) for name, prediction in replayed.items()}
    return Foretold(step, examined.diagnosis.regime, savings, replayed, examined.evidence)


def _saving(replayed: ReplayedSaving | None, step_ns: float | None) -> Saving | None:
    return None if replayed is None or step_ns is None else Saving(*(step_ns * part for part in predicted(replayed)))


def _joined(ways: Sequence[Told]) -> TreatmentWay:
    """Several ways as one that is never applied."""

    def apply(*_: Any) -> Any:
        raise NotImplementedError("a way that was told is never applied")

    return TreatmentWay(
        name=JOINED.join(way.name for way in ways), treatment=ways[0].treatment if len(ways) == 1 else "together",
        apply=apply, code="", numerics=ways[0].numerics, rank=0,
        as_if=tuple(dict.fromkeys(name for way in ways for name in way.as_if)),
        work=math.prod(way.work for way in ways),
    )  # fmt: skip
