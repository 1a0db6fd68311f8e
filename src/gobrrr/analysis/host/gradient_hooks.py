"""Functions that autograd calls in the backward pass, because the program registered them on tensors or modules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.origins import NODE
from gobrrr.analysis.findings.scopes import Spent, frames, spent_under
from gobrrr.model.events import ABSENT, I8, Kind
from gobrrr.model.frame_names import file_of

AROUND = (NODE, "torch::autograd::AccumulateGrad")
"""The events that a hook's frame lies in without another one between: a node, or what adds to a parameter's `.grad`."""

OF_MODULES = "torch/utils/hooks.py("
"""The frames of torch that call the hooks of a module's backward pass."""


@dataclass(frozen=True)
class Hook:
    """One function: `name` of its frame, "path/file.py(7): hook"; its rows; what the steps spend in it."""

    name: str
    rows: I8
    spent: Spent


def gradient_hooks(evidence: Evidence) -> list[Hook]:
    """The hooks of the program and of its libraries, most time first; not torch's own, such as those of FSDP.

    A frame within an operation of the backward pass is none: it is a function of the program's with a backward pass of
    its own.
    """
    parent = evidence.host_parents
    if parent is None or not evidence.training:
        return []
    events = evidence.events
    rows = frames(evidence, lambda name: file_of(name) is not None and not name.startswith("torch/"))
    around = parent[rows]
    of_module = _named(evidence, around, Kind.PYTHON, OF_MODULES)
    around[of_module] = parent[around[of_module]]
    rows = rows[_named(evidence, around, Kind.OP, AROUND)]
    name = events.name[rows]
    found = [(events.names[one], rows[name == one]) for one in np.unique(name).tolist()]
    made = [Hook(name, mine, spent_under(evidence, mine)) for name, mine in found]
    return sorted(made, key=lambda hook: -hook.spent.ns)


def _named(
    evidence: Evidence, rows: I8, kind: Kind, start: str | tuple[str, ...]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """One flag a row: whether it is of the kind, and its name begins so; not for none."""
    events, at = evidence.events, np.maximum(rows, 0)
    fits = np.array([name.startswith(start) for name in events.names] or [False], dtype=bool)
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        (rows != ABSENT) & (events.kind[at] == kind) & fits[events.name[at]]
    )
    return result


def inner_operations(evidence: Evidence, hook: Hook) -> list[tuple[str, float]]:
    """(operation as the hook calls it, ns of one step), most time first."""
    events, seen = evidence.replayed, evidence.host_parents
    assert seen is not None
    ops = events.of(Kind.OP)
    outer = ops[evidence.priced.links.op_parent[ops] >= 0]
    ops = np.setdiff1d(ops, outer[~np.isin(evidence.priced.links.op_parent[outer], _around(evidence))])
    begin, end = np.sort(events.start_ns[hook.rows]), np.sort(events.end_ns[hook.rows])
    at = np.searchsorted(begin, events.start_ns[ops], side="right") - 1
    ops = ops[(at >= 0) & (events.end_ns[ops] <= end[np.maximum(at, 0)])]
    spent: dict[str, float] = {}
    for row in ops.tolist():
        name = events.name_of(row)
        spent[name] = spent.get(name, 0.0) + float(events.duration_ns[row]) / evidence.steps.count
    return sorted(spent.items(), key=lambda item: -item[1])


def _around(evidence: Evidence) -> I8:
    rows = evidence.events.of(Kind.OP)
    return rows[_named(evidence, rows, Kind.OP, AROUND)]
