"""Treatments by the names that a user asks for: "compile", "larger-batch=4", "cuda-graph:model"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.errors import UsageError
from gobrrr.guarded import GuardedParts
from gobrrr.treatments.framework.base import Planned, Predict, Treatment, catalogue, part_of

LEAST_SIZE, MOST_SIZE = 0.01, 1_000.0
"""The range of sizes that a user may ask for, as factors. Chosen: outside of it a size is a mistake."""

NAME = re.compile(r"(?P<word>[^=:]+)(?:=(?P<size>.*)|:(?P<part>.*))?", re.DOTALL)
"""A treatment's name, with a size after "=" or a part after ":"."""


def word_of(name: str) -> str:
    """The name of a treatment without its size or part."""
    return re.split("[=:]", name, maxsplit=1)[0]


def asked(name: str, evidence: Evidence, found: Sequence[ClaimedFinding], parts: GuardedParts) -> list[Planned]:
    """The plans of the named treatment for every finding that it applies to; none where it applies to none. Failures go
    to `parts`.

    Raises UsageError where there is no such treatment, size or part; the caller adds the names that exist.
    """
    treatments = {treatment.name: treatment for treatment in catalogue()}
    match = NAME.fullmatch(name)
    if match is None or match["word"] not in treatments:
        raise UsageError(f"no treatment is called {word_of(name)}")
    treatment = treatments[match["word"]]
    if match["size"] is not None:
        by, times = _size(treatment, match["size"])
        return parts.make(name, lambda: [(name, None, by(evidence, times))], [])
    predict = _predict_of(treatment, match["part"])
    each = [
        (finding, parts.make(part_of(name, finding), partial(predict, evidence, finding), None)) for finding in found
    ]
    planned: list[Planned] = [(name, finding, plan) for finding, plan in each if plan is not None]
    unasked = treatment.unasked if match["part"] is None else treatment.unasked_parts.get(match["part"])
    answered = any(
        finding.finding.code in treatment.answers or not treatment.answers for _, finding, _ in planned if finding
    )
    if unasked is not None and not answered:
        plan = parts.make(name, partial(unasked, evidence), None)
        planned += [(name, None, plan)] if plan is not None else []
    return planned


def _predict_of(treatment: Treatment, part: str | None) -> Predict:
    if part is None:
        return treatment.predict
    if part not in treatment.parts:
        available = f"it has {', '.join(treatment.parts)}" if treatment.parts else "it has none"
        raise UsageError(f"{treatment.name} has no part {part!r}: {available}")
    return treatment.parts[part]


def _size(treatment: Treatment, size: str) -> tuple[Callable[[Evidence, float], TreatmentPlan], float]:
    if treatment.by is None:
        raise UsageError(f"{treatment.name} has no size: write it without =")
    try:
        times = float(size)
    except ValueError:
        times = 0.0
    if not LEAST_SIZE <= times <= MOST_SIZE:
        raise UsageError(f"{treatment.name}={size}: a factor from {LEAST_SIZE:g} to {MOST_SIZE:g}")
    return treatment.by, times
