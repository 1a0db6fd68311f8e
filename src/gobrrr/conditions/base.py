"""The form of a condition, and the catalogue of all conditions.

A condition is a module `<code>_<words>.py` with `CODE`, `TITLE`, a docstring in Markdown (the explanation) and
`check(evidence)`. `check` returns a ClaimedFinding if the condition holds (the finding, and the part of the step's
timeline that it claims), None if it does not hold, and NotChecked if the evidence is not enough to tell.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import NotChecked

Check = Callable[[Evidence], ClaimedFinding | NotChecked | None]

CONDITION_FILE = re.compile(r"(?P<code>[a-z]\d\d)_[a-z0-9_]+")
"""The file name of a condition."""
SECTIONS = ("## How it is recognised", "## What it costs", "## What helps", "## Sick", "## Healthy")
"""Every explanation has these sections, in this order."""


@dataclass(frozen=True)
class Condition:
    """One thing that can be wrong with a step. `explanation` is Markdown; `check` tests the evidence of one device."""

    code: str
    title: str
    explanation: str
    check: Check


@cache
def catalogue() -> tuple[Condition, ...]:
    """All conditions, sorted by code. Raises TypeError with the module's name where one has a wrong form."""
    package = import_module("gobrrr.conditions")
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if CONDITION_FILE.fullmatch(info.name)]
    conditions = [condition_of(import_module(f"gobrrr.conditions.{name}")) for name in sorted(names)]
    if len({condition.code for condition in conditions}) < len(conditions):
        raise TypeError(f"two conditions have one code: {', '.join(condition.code for condition in conditions)}")
    return tuple(sorted(conditions, key=lambda condition: condition.code))


def condition_of(module: ModuleType) -> Condition:
    """The condition that a module describes; TypeError, with the module's name, where its form is wrong."""
    match = CONDITION_FILE.fullmatch(module.__name__.rpartition(".")[2])
    code, title, check = (getattr(module, key, None) for key in ("CODE", "TITLE", "check"))
    text = (module.__doc__ or "").strip()
    if match is None or code != match["code"].upper():
        raise TypeError(f"{module.__name__}: CODE is {code!r}, the file's name says otherwise")
    if not isinstance(title, str) or not title or not callable(check):
        raise TypeError(f"{module.__name__}: needs a TITLE and a function check(evidence)")
    starts = [text.find(section) for section in SECTIONS]
    if starts[0] <= 0 or starts != sorted(starts):
        raise TypeError(f"{module.__name__}: its docstring needs a text and the sections {', '.join(SECTIONS)}")
    return Condition(code, title, text, check)
