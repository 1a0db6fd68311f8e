"""Each quantity that steps of two arms gave, judged: outputs, losses, gradients, the change of the parameters.

The first step begins with the same parameters: only rounding may differ. The next ones begin where the last one ended,
and an optimizer that takes the sign of a gradient that is nearly 0 goes the other way for any rounding; a gradient
jumps where the forward has a kink, and any rounding moves some value over one. So of what rounds otherwise, later steps
may be off by half of the digits, gradients by four times that.
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
SUMS, SUMMED = 64.0, 2.0**-24
"""Roundoffs of the type that sums are made in, float32 or what is finer: another order of many of them makes more."""
MOST_SUMS = 2048.0
"""Of so many terms a sum may be off by about the root of their number in another order, and never by more than this:
an error of a thousandth is none of summing."""
LOOSE = 0.5
"""What the change of parameters may be off by in a lower precision."""
TRIMMED = 0.1
"""Of the changes this share, those that differ most, is left out: those of gradients that are nothing but rounding."""


@dataclass(frozen=True)
class Sides:
    """What is held against each other. `response`: the baseline with its parameters off by one rounding.

    `exact`: nothing may round otherwise. `lower`: a lower precision than before is in play. `terms`: of the largest
    tensor that may be summed to one value.
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
        """What is allowed after the first step at the least."""
        trains = any(self.baseline.changed.values())
        return 0.0 if self.exact or not trains else math.sqrt(self.roundoff)

    def least(self, values: int) -> float:
        """What is allowed of the first step at the least, of a tensor of so many values."""
        times = max(SUMS, min(math.sqrt(self.terms), MOST_SUMS)) if values <= judging.FEW else SUMS
        return 0.0 if self.exact else times * min(self.roundoff, SUMMED)

    def named(self, name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """One quantity of the treated, the baseline, the truth; and of the response."""
        held = [getattr(observed, name) for observed in (self.treated, self.baseline, self.truth)]
        return held, {} if self.response is None else getattr(self.response, name)


def judged(sides: Sides) -> dict[str, Judged]:
    """Each quantity that all have. `change` is there to find what is wrong; the record has no field for it."""
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
    found["change"] = _pooled(sides, "change", "the change of the parameters", LOOSE if sides.lower else change)
    return found


def _parts(sides: Sides, name: str, label: str, *, needed: bool = False) -> Judged:
    """Every tensor of an output by itself, and of each the first step and the later ones."""
    held, answers = sides.named(name)
    found: list[Judged] = []
    for key, values in held[1].items():
        if any(key not in one or not _alike(one[key], values) for one in (held[0], held[2])):
            if needed and key not in held[0]:
                found.append(Judged(None, f"{label}{key} is not there any more"))
            continue
        answer = answers.get(key)
        usable = answer is not None and _alike(answer, values)
        first = sides.least(values[0].numel())
        for steps, least in ((slice(0, 1), first), (slice(1, None), max(first, sides.later))):
            if values[steps]:
                given = (torch.cat([one.reshape(-1) for one in side[key][steps]]) for side in held)
                response = torch.cat([one.reshape(-1) for one in answer[steps]]) if usable and answer else None
                found.append(judge(f"{label}{key}", *given, roundoff=sides.roundoff, response=response, least=least))
    return worst(_telling(found))


def _telling(found: list[Judged]) -> list[Judged]:
    """Without those for which anything would be allowed, as long as others are there; nothing wrong is left out."""
    told = [one for one in found if one.errors is None or one.wrong or (one.errors.allowed or 0.0) <= judging.MOST]
    return told if any(one.errors is not None for one in told) else found


def _pooled(sides: Sides, name: str, label: str, least: float) -> Judged:
    """A quantity of many tensors as one: one of them may be nothing but rounding. The first of several steps alone."""
    held, answers = sides.named(name)
    if not any(isinstance(one, list) and len(one) > 1 for one in held[1].values()):
        return _as_one(sides, name, label, least, held, answers)
    found = []
    for steps in (slice(0, 1), slice(1, None)):
        some = [{key: one[steps] for key, one in side.items()} for side in held]
        own = {key: answer[steps] for key, answer in answers.items()}
        found.append(_as_one(sides, name, label, least, some, own))
    return worst(_telling(found))


def _as_one(
    sides: Sides, name: str, label: str, least: float, held: list[dict[str, Any]], answers: dict[str, Any]
) -> Judged:
    names = [key for key in held[1] if all(key in one and _alike(one[key], held[1][key]) for one in held)]
    if not names:
        return Judged(None)
    vectors = [judging.joined(one, names) for one in held]
    if not any(bool(vector.any()) for vector in vectors):
        return Judged(None)
    if name == "change":  # a small change of a large value is rounded as that value is
        size, moved = math.hypot(*(sides.baseline.sizes[key] for key in names)), float(vectors[2].double().norm())
        least = max(least, judging.ROUNDOFFS * sides.roundoff * size / moved) if moved else least
    usable = all(key in answers and _alike(answers[key], held[1][key]) for key in names)
    answer = judging.joined(answers, names) if usable else None
    trimmed = TRIMMED if name == "change" else 0.0
    return judge(label, *vectors, roundoff=sides.roundoff, response=answer, least=least, trimmed=trimmed)


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one.shape == other.shape)
