"""The form of a treatment, and the catalogue of all treatments.

A treatment is a module with a docstring in Markdown (the explanation; its first line is the title), `NAME`, `CODE`
(what to paste), `NUMERICS` and `predict(evidence, found)`. `predict` is pure: it returns the plan of what the treatment
changes in the step for a finding, or None where it does not apply. The replay computes what the change saves.

A treatment that can be tried also has `ways(workload)`: the ways to apply it to a workload in this process
(treatments.framework.way), and the reasons why others do not fit. A treatment without `ways` is advice to change the
user's source.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import cast, get_args

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.way import Numerics, Ways

Predict = Callable[[Evidence, ClaimedFinding], "TreatmentPlan | None"]
"""The plan for a finding; None where the treatment does not apply to it."""

Unasked = Callable[[Evidence], "TreatmentPlan | None"]
"""The plan where no finding asks for the treatment, but the user does."""

Planned = tuple[str, ClaimedFinding | None, TreatmentPlan]
"""A treatment's name, the finding that it is for (None: it was asked for without one), and what it changes."""


@dataclass(frozen=True)
class Treatment:
    """One treatment. `predict` plans its change for a finding; `ways` None means that it is advice.

    `by`: the plan for a size that the user asks for ("larger-batch=4"). `parts`: `predict` for parts of the step to
    which it can be applied ("cuda-graph:model"). `unasked` and `unasked_parts`: the plans for a user who asks by name
    where it has no plan for a finding with one of the codes `answers`; (): with any code.
    """

    name: str
    title: str
    explanation: str
    code_to_paste: str
    numerics: Numerics
    predict: Predict
    ways: Ways | None = None
    by: Callable[[Evidence, float], TreatmentPlan] | None = None
    parts: Mapping[str, Predict] = field(default_factory=dict)
    unasked: Unasked | None = None
    unasked_parts: Mapping[str, Unasked] = field(default_factory=dict)
    answers: tuple[str, ...] = ()


def part_of(name: str, found: ClaimedFinding) -> str:
    """The name under which a failed prediction is reported."""
    return f"{name} for {found.finding.code}"


@cache
def catalogue() -> tuple[Treatment, ...]:
    """All treatments, sorted by name. Raises TypeError with the module's name where one has a wrong form."""
    package = import_module("gobrrr.treatments")
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.ispkg]
    found = [treatment_of(import_module(f"gobrrr.treatments.{name}")) for name in sorted(names)]
    return tuple(sorted(found, key=lambda treatment: treatment.name))


def treatment_of(module: ModuleType) -> Treatment:
    """The treatment that a module describes; TypeError, with the module's name, where its form is wrong."""
    name, code, numerics, predict = (getattr(module, key, None) for key in ("NAME", "CODE", "NUMERICS", "predict"))
    text = (module.__doc__ or "").strip()
    file = module.__name__.rpartition(".")[2]
    if not isinstance(name, str) or name.replace("-", "_") != file:
        raise TypeError(f"{module.__name__}: NAME is {name!r}, the file's name says otherwise")
    if not text or not isinstance(code, str) or not callable(predict):
        raise TypeError(f"{module.__name__}: needs a docstring, CODE and a function predict(evidence, found)")
    if numerics not in get_args(Numerics):
        raise TypeError(f"{module.__name__}: NUMERICS is {numerics!r}, not one of {', '.join(get_args(Numerics))}")
    ways = getattr(module, "ways", None)
    if ways is not None and not callable(ways):
        raise TypeError(f"{module.__name__}: ways is a function ways(workload)")
    title = text.splitlines()[0].rstrip(".")
    by = getattr(module, "by", None)
    parts = getattr(module, "PARTS", {})
    return Treatment(
        name, title, text, code.strip(), cast(Numerics, numerics), predict, ways, by, parts,
        unasked=getattr(module, "unasked", None),
        unasked_parts=getattr(module, "UNASKED_PARTS", {}),
        answers=getattr(module, "ANSWERS", ()),
    )  # fmt: skip
