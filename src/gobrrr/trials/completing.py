"""Finds the model and the optimizer of a step that was given alone, where there is exactly one of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gobrrr.model.workload import Workload
from gobrrr.observe.live.state.parts import parts_of
from gobrrr.treatments.framework.reaching import name_of


def completed(workload: Workload) -> tuple[Workload, list[str]]:
    """The workload with the model and the optimizer that its step reaches, and notes on what was found.

    A model is a module with parameters. Where the step reaches several, none is taken: it is not known which one it
    trains.
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
    taken = [f"{word} ({_named(workload, thing)})" for word, thing in found.items() if thing is not None]
    if taken:
        which = " and its ".join(taken)
        notes.append(f"found through the step's code: its {which}; a gobrrr.Workload names them")
    return replace(workload, **found), notes


def _only(word: str, things: Sequence[Any], workload: Workload, notes: list[str]) -> Any:
    if len(things) > 1:
        names = ", ".join(_named(workload, thing) for thing in things)
        notes.append(
            f"the step's code reaches {len(things)} {word}s ({names}): which one is the step's is not known, and ways "
            f"that need it were not tried; return a gobrrr.Workload with {word}="
        )
    return things[0] if len(things) == 1 else None


def _named(workload: Workload, thing: Any) -> str:
    return name_of(workload, thing) or type(thing).__name__
