"""Judges each quantity of two arms' steps: outputs, losses, gradients, and the change of the parameters.

The first step begins with equal parameters, so only rounding may differ. Each later step begins where the last one
ended. Rounding can flip an optimizer that uses the sign of a gradient near 0, and can move a value over a kink of the
forward pass, where the gradient jumps. So where a way changes the rounding, later steps may be off by half of the
digits, and gradients by four times that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from gobrrr.trials import judging
from gobrrr.trials.judging import Judged, judge, worst
from gobrrr.trials.observed import Observed

GRADIENT_TIMES = 4.0
"""How many times the square root of the roundoff gradients may be off by. Chosen, not measured."""
SUM_ROUNDOFFS, SUM_UNIT_ROUNDOFF = 64.0, 2.0**-24
"""Roundoffs that a sum may be off by in another order, and the roundoff of float32, in which sums are made, or finer.
Chosen, not measured."""
MOST_SUMS = 2048.0
"""Roundoffs that a sum of very many terms may be off by at most: otherwise the square root of the number of terms. An
error of a thousandth does not come from summing."""
MOST_LOWER_PRECISION_CHANGE = 0.5
"""Share by which the change of parameters may be off in a lower precision. Chosen, not measured."""
TRIMMED_SHARE = 0.1
"""The share of the largest differences between changes that is left out: gradients that are only rounding cause them.
Chosen, not measured."""


@dataclass(frozen=True)
class ComparedRuns:
    """The values to compare. `response`: the baseline with its parameters off by one rounding.

    `exact`: no rounding may differ. `lower`: the way uses a lower precision. `terms`: the size of the largest tensor
    that may be summed to one value.
    """

    treated: Observed
    baseline: Observed
    truth: Observed
    response: Observed | None
    roundoff: float
    exact: bool
    lower: bool
    terms: int = 1

    @property
    def later(self) -> float:
        """The least error that is allowed after the first step."""
        trains = any(self.baseline.changed.values())
        return 0.0 if self.exact or not trains else math.sqrt(self.roundoff)

    def least(self, values: int) -> float:
        """The least error that is allowed in the first step, for a tensor of so many values."""
        times = (
            max(SUM_ROUNDOFFS, min(math.sqrt(self.terms), MOST_SUMS)) if values <= judging.FEW_VALUES else SUM_ROUNDOFFS
        )
        return 0.0 if self.exact else times * min(self.roundoff, SUM_UNIT_ROUNDOFF)

    def named(self, name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """One quantity of the treated arm, the baseline and the truth; and of the response."""
        held = [getattr(observed, name) for observed in (self.treated, self.baseline, self.truth)]
        return held, {} if self.response is None else getattr(self.response, name)


def judged(sides: ComparedRuns) -> dict[str, Judged]:
    """Judge each quantity that all sides have. `change` only serves to find errors; the record has no field for it."""
    outputs = [_parts(sides, "returned", "the output", needed=True), _parts(sides, "outputs", "the model's output")]
    found = {"output": worst([output for output in outputs if output.errors or output.wrong or output.unknown])}
    losses = torch.cat(sides.baseline.losses[""]) if sides.baseline.losses else None
    if losses is not None and not bool(torch.isfinite(losses).all()):
        found["loss"] = Judged(None, unknown="the loss of the step as it is is not finite")
    elif losses is not None:
        found["loss"] = _parts(sides, "losses", "the loss", needed=True)
    gradients = 0.0 if sides.exact else GRADIENT_TIMES * math.sqrt(sides.roundoff)
    found["gradients"] = _pooled(sides, "gradients", "the gradients", gradients)
    change = 0.0 if sides.exact else math.sqrt(sides.roundoff)
    found["change"] = _pooled(
        sides, "change", "the change of the parameters", MOST_LOWER_PRECISION_CHANGE if sides.lower else change
    )
    return found


def _parts(sides: ComparedRuns, name: str, label: str, *, needed: bool = False) -> Judged:
    """Judge every tensor of an output by itself, the first step apart from the later ones."""
    held, answers = sides.named(name)
    found: list[Judged] = []
    for key, values in held[1].items():
        if any(key not in side or not _alike(side[key], values) for side in (held[0], held[2])):
            if needed and key not in held[0]:
                found.append(Judged(None, f"{label}{key} is not there any more"))
            continue
        answer = answers.get(key)
        usable = answer is not None and _alike(answer, values)
        first = sides.least(values[0].numel())
        for steps, least in ((slice(0, 1), first), (slice(1, None), max(first, sides.later))):
            if values[steps]:
                given = (torch.cat([tensor.reshape(-1) for tensor in side[key][steps]]) for side in held)
                response = torch.cat([tensor.reshape(-1) for tensor in answer[steps]]) if usable and answer else None
                found.append(judge(f"{label}{key}", *given, roundoff=sides.roundoff, response=response, least=least))
    return worst(_telling(found))


def _telling(found: list[Judged]) -> list[Judged]:
    """Without parts for which almost any error would be allowed, if others are left; parts that are wrong stay."""
    telling = [
        part
        for part in found
        if part.errors is None or part.wrong or (part.errors.allowed or 0.0) <= judging.MOST_ALLOWED_ERROR
    ]
    return telling if any(part.errors is not None for part in telling) else found


def _pooled(sides: ComparedRuns, name: str, label: str, least: float) -> Judged:
    """Judge many tensors as one quantity, because a single one may be only rounding; the first step apart."""
    held, answers = sides.named(name)
    if not any(isinstance(values, list) and len(values) > 1 for values in held[1].values()):
        return _as_one(sides, name, label, least, held, answers)
    found = []
    for steps in (slice(0, 1), slice(1, None)):
        some = [{key: values[steps] for key, values in side.items()} for side in held]
        own = {key: answer[steps] for key, answer in answers.items()}
        found.append(_as_one(sides, name, label, least, some, own))
    return worst(_telling(found))


def _as_one(
    sides: ComparedRuns, name: str, label: str, least: float, held: list[dict[str, Any]], answers: dict[str, Any]
) -> Judged:
    names = [key for key in held[1] if all(key in side and _alike(side[key], held[1][key]) for side in held)]
    if not names:
        return Judged(None)
    vectors = [judging.joined(side, names) for side in held]
    if not any(bool(vector.any()) for vector in vectors):
        return Judged(None)
    if name == "change":  # a small change of a large value is rounded as that value is
        size, moved = math.hypot(*(sides.baseline.sizes[key] for key in names)), float(vectors[2].double().norm())
        least = max(least, judging.ROUNDOFFS * sides.roundoff * size / moved) if moved else least
    usable = all(key in answers and _alike(answers[key], held[1][key]) for key in names)
    answer = judging.joined(answers, names) if usable else None
    trimmed = TRIMMED_SHARE if name == "change" else 0.0
    return judge(label, *vectors, roundoff=sides.roundoff, response=answer, least=least, trimmed=trimmed)


def _alike(first: Any, other: Any) -> bool:
    if isinstance(first, list):
        return len(first) == len(other) and all(map(_alike, first, other))
    return bool(first.shape == other.shape)
