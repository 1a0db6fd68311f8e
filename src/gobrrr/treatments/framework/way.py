"""One way to apply a treatment to a workload that is run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.workload import Workload

Numerics = Literal["none", "rounding", "statistics"]
"""What a treatment may do to the numbers: nothing, other rounding, other statistics of the training."""

Apply = Callable[[Workload, dict[str, Any]], AbstractContextManager[Workload]]
"""Yields the workload with the treatment and restores everything, also after an exception.

It is entered many times, for both arms are timed in turns: what is costly is put into the dictionary at the first time.
"""

SETTINGS, MODEL, ATTENTION, OPTIMIZER, REMATERIALISATION, COMPILER, PRECISION, GRAPH, INPUT = range(0, 90, 10)
"""The order in which ways are stacked, the smallest innermost."""


class Unapplied(Exception):
    """A way can't be applied to a workload, found out while it is applied: one line. `way`: which one, of several."""

    way = ""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to apply a treatment.

    `as_if` names the treatments whose plans together predict it, () where there is no prediction: then `worth` says why
    it can't pay here, or "". `conflicts` are names of ways and treatments that can't stand beside it. `slow`: it
    compiles for minutes, and comes after those that don't. `work` is what a step does then, in steps of before.
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
class Unfit:
    """A way that does not apply to a workload, and why in one line."""

    name: str
    why: str


Ways = Callable[[Workload], Iterator["Way | Unfit"]]
