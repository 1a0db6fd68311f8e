"""One way to apply a treatment to a workload that is run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.workload import Workload

Numerics = Literal["none", "rounding", "statistics"]
"""What a treatment may change in the numbers: nothing, their rounding, or the statistics of training."""

Apply = Callable[[Workload, dict[str, Any]], AbstractContextManager[Workload]]
"""Yields the workload with the treatment applied, and restores everything, also after an exception.

It is entered many times, because both arms are timed in turns: costly objects are kept in the dictionary.
"""

SETTINGS, MODEL, ATTENTION, OPTIMIZER, REMATERIALISATION, COMPILER, PRECISION, GRAPH, INPUT = range(0, 90, 10)
"""The order in which ways are applied, the smallest rank innermost. Steps of ten leave room between them."""


class NotApplicable(Exception):
    """A way turned out not to apply to a workload: one line says why. `way`: which one, where several were applied."""

    way = ""


def error_line(error: BaseException) -> str:
    """The kind and the first line of an error."""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}".rstrip(": ")[:200]


@dataclass(frozen=True, kw_only=True)
class TreatmentWay:
    """One way to apply a treatment.

    `as_if`: the treatments whose plans together predict it; () where nothing predicts it: then `worth` says why it
    can't pay here, or "". `conflicts`: ways and treatments that can't be combined with it. `fresh`: it needs a process
    of its own. `slow`: it compiles for minutes, and is tried later. `work`: how many times the work of the original
    step one step does.
    """

    name: str
    treatment: str
    apply: Apply
    code: str
    numerics: Numerics
    rank: int
    as_if: tuple[str, ...] = ()
    conflicts: frozenset[str] = frozenset()
    fresh: bool = False
    compiles: bool = False
    slow: bool = False
    work: float = 1.0
    worth: Callable[[Diagnosis], str] | None = None


@dataclass(frozen=True)
class UnfitWay:
    """A way that does not fit a workload, and one line that says why."""

    name: str
    why: str


Ways = Callable[[Workload], Iterator["TreatmentWay | UnfitWay"]]
