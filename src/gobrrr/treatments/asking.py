"""Treatments by the names that they are asked for: "compile", "larger-batch=4", "cuda-graph:model"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gobrrr.analysis.claims import Found
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.errors import UsageError
from gobrrr.treatments.base import Treatment, catalogue
from gobrrr.treatments.prescribing import Planned

LEAST_TIMES, MOST_TIMES = 0.01, 1_000.0
"""Factors that a treatment with a size may be asked for."""

NAME = re.compile(r"(?P<word>[^=:]+)(?:=(?P<size>.*)|:(?P<part>.*))?", re.DOTALL)


def word_of(name: str) -> str:
    """The treatment's own name."""
    return re.split("[=:]", name, maxsplit=1)[0]


def asked(name: str, evidence: Evidence, found: Sequence[Found]) -> list[Planned]:
    """The plans of the treatment that a name asks for, of every finding that it is for; none where it applies to none.

    Raises UsageError where there is no such treatment, size or part; the text does not say what there is instead.
    """
    known = {one.name: one for one in catalogue()}
    match = NAME.fullmatch(name)
    if match is None or match["word"] not in known:
        raise UsageError(f"no treatment is called {word_of(name)}")
    treatment = known[match["word"]]
    if match["size"] is not None:
        return [(name, None, _of_size(treatment, match["size"], evidence))]
    each = ((one, _of_part(treatment, match["part"], evidence, one)) for one in found)
    made: list[Planned] = [(name, one, plan) for one, plan in each if plan is not None]
    if not made and match["part"] is None and treatment.unasked is not None:
        plan = treatment.unasked(evidence)
        return [(name, None, plan)] if plan is not None else []
    return made


def _of_part(treatment: Treatment, part: str | None, evidence: Evidence, found: Found) -> Plan | None:
    if part is None:
        return treatment.predict(evidence, found)
    one = treatment.parts.get(part)
    if one is None:
        there = f"it has {', '.join(treatment.parts)}" if treatment.parts else "it has none"
        raise UsageError(f"{treatment.name} has no part {part!r}: {there}")
    return one(evidence, found)


def _of_size(treatment: Treatment, size: str, evidence: Evidence) -> Plan:
    if treatment.by is None:
        raise UsageError(f"{treatment.name} has no size: write it without =")
    try:
        times = float(size)
    except ValueError:
        times = 0.0
    if not LEAST_TIMES <= times <= MOST_TIMES:
        raise UsageError(f"{treatment.name}={size}: a factor from {LEAST_TIMES:g} to {MOST_TIMES:g}")
    return treatment.by(evidence, times)
