"""Relative errors of two arms against a reference, and the largest error that is allowed.

A treated step may be off by four times the error of the original step, by sixteen times where a quantity has few values
(two errors of one value say little about their size), or by 16 unit roundoffs. A way that changes the rounding may also
be off by as many times the change of the original step when its parameters are off by one rounding: an ill-conditioned
step reacts to that as to any rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

import torch

from gobrrr.model.treated import Errors

ALLOWED_ERROR_FACTOR, ALLOWED_ERROR_FACTOR_FEW = 4.0, 16.0
"""How many times the original step's error is allowed: in general, and for a quantity of few values. Chosen."""
FEW_VALUES = 64
"""A quantity with at most so many values has few. Chosen, not measured."""
ROUNDOFFS = 16.0
"""Unit roundoffs that are always allowed. Chosen, not measured."""
MOST_ALLOWED_ERROR = 0.5
"""A quantity that may be off by a larger share of its size can't be judged: rounding alone may change it that much."""
SIGMAS = 6.0
"""Standard errors by which the means of a few runs may differ: many, because few runs give a poor estimate of the
spread. Chosen, not measured."""


@dataclass(frozen=True)
class Judged:
    """The judgement of one quantity: the errors of its worst part, what is wrong with it, or why it can't be judged."""

    errors: Errors | None
    wrong: str = ""
    unknown: str = ""


def error(value: Any, reference: Any, scale: Any = None, trimmed: float = 0.0) -> float:
    """||value - reference|| / ||reference||; for integers the share that differs; infinite where one is not finite.

    NaNs and infinities at the same place count as equal. `scale` replaces a reference that is 0. The largest
    differences, a share `trimmed` of all values, are left out.
    """
    if value.shape != reference.shape:
        return math.inf
    if not value.is_floating_point() and not reference.is_floating_point():
        return float((value != reference).double().mean()) if value.numel() else 0.0
    value, reference = value.double(), reference.double()
    same = (value == reference) | (value.isnan() & reference.isnan())
    if bool(same.all()):
        return 0.0
    if not bool(torch.isfinite(value[~same]).all() and torch.isfinite(reference[~same]).all()):
        return math.inf
    apart = (value - reference)[~same].abs()
    few = int(trimmed * value.numel())
    if few:
        apart = apart.sort().values[: max(0, apart.numel() - few)]
    off = float(apart.norm())
    size = float(reference[torch.isfinite(reference)].norm())
    if size == 0 and scale is not None:
        size = float(scale[torch.isfinite(scale)].double().norm())
    return off / size if size else math.inf


def joined(parts: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The values of several names concatenated, where each may be a list with a tensor per step."""
    found = [tensor for name in names for tensor in (parts[name] if isinstance(parts[name], list) else [parts[name]])]
    return torch.cat([tensor.reshape(-1) for tensor in found])


def judge(
    what: str,
    treated: Any,
    baseline: Any,
    reference: Any,
    *,
    roundoff: float,
    response: Any = None,
    least: float = 0.0,
    trimmed: float = 0.0,
) -> Judged:
    """Judge one quantity of both arms. `response`: the baseline with its parameters off by one rounding."""
    own = error(baseline, reference, baseline, trimmed)
    if math.isinf(own):
        return Judged(None, unknown=f"{what}: not finite, or zero, in the step as it is")
    off = error(treated, reference, baseline, trimmed)
    answers = error(response, baseline, baseline, trimmed) if response is not None else 0.0
    if math.isinf(answers):
        answers = 0.0
    times = ALLOWED_ERROR_FACTOR if treated.numel() > FEW_VALUES else ALLOWED_ERROR_FACTOR_FEW
    allowed = max(times * max(own, answers), ROUNDOFFS * roundoff, least)
    errors = Errors(treated=off if math.isfinite(off) else None, baseline=own, allowed=allowed)
    if off <= allowed:
        return Judged(errors)
    if math.isinf(off):
        return Judged(errors, f"{what}: no longer finite")
    return Judged(errors, f"{what} off by {off:.2g} of its size, {allowed:.2g} is allowed ({own:.2g} before)")


def worst(found: Sequence[Judged]) -> Judged:
    """The part with the largest error relative to what is allowed."""
    if not found:
        return Judged(None)

    def far(judged: Judged) -> float:
        if judged.errors is None:
            return -1.0
        if judged.errors.treated is None:
            return math.inf
        return judged.errors.treated / judged.errors.allowed if judged.errors.allowed else judged.errors.treated

    top = max(found, key=far)
    if top.wrong:
        return top
    return Judged(top.errors, unknown=next((judged.unknown for judged in found if judged.unknown), ""))


def means_differ(treated: Sequence[float], baseline: Sequence[float], roundoff: float) -> str:
    """How two sets of runs with different random numbers differ by more than chance, in words; "" where they don't."""
    if not all(map(math.isfinite, baseline)):
        return ""
    if not all(map(math.isfinite, treated)):
        return "no longer finite"
    if len(treated) < 2 or len(baseline) < 2:
        return ""
    treated_mean, baseline_mean = fmean(treated), fmean(baseline)
    chance = math.sqrt(variance(treated) / len(treated) + variance(baseline) / len(baseline))
    allowed = SIGMAS * chance + ROUNDOFFS * roundoff * abs(baseline_mean)
    if abs(treated_mean - baseline_mean) <= allowed:
        return ""
    return f"{treated_mean:.4g} on average, {baseline_mean:.4g} before, where chance explains {allowed:.2g}"
