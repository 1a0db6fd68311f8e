"""A step that was handed over alone: the model and the optimizer that it leads to, where there is one of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gobrrr.model.workload import Workload
from gobrrr.observe.live.state.parts import parts_of
from gobrrr.treatments.framework.reaching import name_of


def completed(workload: Workload) -> tuple[Workload, list[str]]:
    """The workload with the model and the optimizer that its step leads to, and notes: what was found, or why not.

    A model is a module with parameters. Of several it is not known which one the step trains: none is taken.
    """
    if workload.step is None or workload.model is not None or workload.optimizer is not None:
        return workload, []
    parts = parts_of(workload)
    models = [module for module in parts.modules if next(module.parameters(), None) is not None]
    notes: list[str] = []
    found = {
        "model": _only("model", models, workload, notes),
        "optimizer": _only("optimizer", parts.optimizers, workload, notes),
    }
    taken = [f"{word} ({_named(workload, one)})" for word, one in found.items() if one is not None]
    if taken:
        which = " and its ".join(taken)
        notes.append(f"found by what the step's code leads to: its {which}; a gobrrr.Workload names them")
    return replace(workload, **found), notes


def _only(word: str, things: Sequence[Any], workload: Workload, notes: list[str]) -> Any:
    if len(things) > 1:
        names = ", ".join(_named(workload, one) for one in things)
        notes.append(
            f"the step leads to {len(things)} {word}s ({names}): which one is its own is not known, and what needs it "
            f"was not tried; return a gobrrr.Workload with {word}="
        )
    return things[0] if len(things) == 1 else None


def _named(workload: Workload, thing: Any) -> str:
    return name_of(workload, thing) or type(thing).__name__
