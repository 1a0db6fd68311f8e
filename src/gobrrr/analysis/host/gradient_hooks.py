"""Functions that autograd calls in the backward pass: hooks that the program registered on tensors or modules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.origins import AUTOGRAD_NODE
from gobrrr.analysis.findings.scopes import TimeUnderEvents, frames, spent_under
from gobrrr.model.events import ABSENT, I8, EventKind, Mask
from gobrrr.model.frame_names import file_of

AROUND = (AUTOGRAD_NODE, "torch::autograd::AccumulateGrad")
"""The event directly around a hook's frame is one of these: a node, or the addition to a parameter's `.grad`."""

OF_MODULES = "torch/utils/hooks.py("
"""torch's frames that call the hooks of a module's backward pass."""


@dataclass(frozen=True)
class Hook:
    """One hook: the `name` of its frame, "path/file.py(7): hook"; its rows; the time that the steps spend in it."""

    name: str
    rows: I8
    spent: TimeUnderEvents


def gradient_hooks(evidence: Evidence) -> list[Hook]:
    """The hooks of the program and of its libraries, longest time first; without torch's own, such as those of FSDP.

    A frame within an operation of the backward pass is no hook: it belongs to a custom autograd function.
    """
    parent = evidence.host_parents
    if parent is None or not evidence.training:
        return []
    events = evidence.events
    rows = frames(evidence, lambda name: file_of(name) is not None and not name.startswith("torch/"))
    around = parent[rows]
    of_module = _named(evidence, around, EventKind.PYTHON, OF_MODULES)
    around[of_module] = parent[around[of_module]]
    rows = rows[_named(evidence, around, EventKind.OP, AROUND)]
    name = events.name[rows]
    by_name = [(events.names[index], rows[name == index]) for index in np.unique(name).tolist()]
    hooks = [Hook(name, hook_rows, spent_under(evidence, hook_rows)) for name, hook_rows in by_name]
    return sorted(hooks, key=lambda hook: -hook.spent.ns)


def _named(evidence: Evidence, rows: I8, kind: EventKind, start: str | tuple[str, ...]) -> Mask:
    """For each row, whether it is of the kind and its name begins with `start`; False for row -1."""
    events, at = evidence.events, np.maximum(rows, 0)
    fits = np.array([name.startswith(start) for name in events.names] or [False], dtype=bool)
    result: Mask = (rows != ABSENT) & (events.kind[at] == kind) & fits[events.name[at]]
    return result


def inner_operations(evidence: Evidence, hook: Hook) -> list[tuple[str, float]]:
    """(operation that the hook calls, ns per step), longest time first."""
    events = evidence.replayed
    ops = events.of(EventKind.OP)
    outer = ops[evidence.priced.links.op_parent[ops] >= 0]
    around = ops[_named(evidence, ops, EventKind.OP, AROUND)]
    ops = np.setdiff1d(ops, outer[~np.isin(evidence.priced.links.op_parent[outer], around)])
    begin, end = np.sort(events.start_ns[hook.rows]), np.sort(events.end_ns[hook.rows])
    at = np.searchsorted(begin, events.start_ns[ops], side="right") - 1
    ops = ops[(at >= 0) & (events.end_ns[ops] <= end[np.maximum(at, 0)])]
    spent: dict[str, float] = {}
    for row in ops.tolist():
        name = events.name_of(row)
        spent[name] = spent.get(name, 0.0) + float(events.duration_ns[row]) / evidence.steps.count
    return sorted(spent.items(), key=lambda item: -item[1])
