"""The form of a treatment, and the catalogue of all that the package holds.

A treatment is a module with a docstring in Markdown (the explanation; its first line is the title), `NAME`, `CODE`
(what to paste), `NUMERICS` and `predict(evidence, finding)`. `predict` is pure arithmetic. It returns None where
the treatment does not apply, and an interval of (0, 0) where it applies and gives nothing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Literal, cast, get_args

from gobrrr.analysis.evidence import Evidence
from gobrrr.model.diagnosis import Finding, Prescription

Numerics = Literal["none", "rounding", "statistics"]
"""What a treatment may do to the numbers: nothing, other rounding, other statistics of the training."""

Predict = Callable[[Evidence, Finding], "Prescription | None"]

FORM = ("base",)
"""Modules of the package that are no treatment."""


@dataclass(frozen=True)
class Treatment:
    """One remedy. `predict` says what it would save on one step, in ns, for a finding."""

    name: str
    title: str
    explanation: str
    code_to_paste: str
    numerics: Numerics
    predict: Predict


@cache
def catalogue() -> tuple[Treatment, ...]:
    """All treatments, sorted by name. Raises TypeError with the module's name where one has a wrong form."""
    package = import_module("gobrrr.treatments")
    names = [one.name for one in pkgutil.iter_modules(package.__path__) if one.name not in FORM]
    found = [treatment_of(import_module(f"gobrrr.treatments.{name}")) for name in sorted(names)]
    return tuple(sorted(found, key=lambda one: one.name))


def treatment_of(module: ModuleType) -> Treatment:
    """The treatment that a module describes; TypeError, with the module's name, where its form is wrong."""
    name, code, numerics, predict = (getattr(module, key, None) for key in ("NAME", "CODE", "NUMERICS", "predict"))
    text = (module.__doc__ or "").strip()
    file = module.__name__.rpartition(".")[2]
    if not isinstance(name, str) or name.replace("-", "_") != file:
        raise TypeError(f"{module.__name__}: NAME is {name!r}, the file's name says otherwise")
    if not text or not isinstance(code, str) or not callable(predict):
        raise TypeError(f"{module.__name__}: needs a docstring, CODE and a function predict(evidence, finding)")
    if numerics not in get_args(Numerics):
        raise TypeError(f"{module.__name__}: NUMERICS is {numerics!r}, not one of {', '.join(get_args(Numerics))}")
    title = text.splitlines()[0].rstrip(".")
    return Treatment(name, title, text, code.strip(), cast(Numerics, numerics), predict)


def prescription(name: str, finding: Finding, saving: tuple[float, float], how: str, assumes: str) -> Prescription:
    """A prescription with 0 <= low <= high."""
    high = max(saving[1], 0.0)
    return Prescription(
        treatment=name,
        finding=finding.code,
        predicted_saving_ns=(min(max(saving[0], 0.0), high), high),
        how=how,
        assumes=assumes,
    )
