"""Loops on the host that update many tensors one by one, outside an optimizer's step: averages of weights, metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.optimizers import ADAPTIVE, IN_PLACE, LEAST_RUN, UPDATES, begun_inside, optimizer_spans
from gobrrr.model.events import I8, Kind

FREE = (
    "detach", "detach_", "view", "alias", "t", "transpose", "select", "slice", "unsqueeze", "squeeze", "expand",
    "as_strided", "reshape", "to", "lift_fresh", "item", "_local_scalar_dense", "narrow", "view_as", "unbind",
)  # fmt: skip
"""Operations between updates that compute nothing: a loop goes on through them."""


@dataclass(frozen=True)
class UpdateLoop:
    """Operations of one loop, as rows of the host's timeline in order."""

    rows: I8
    names: tuple[str, ...]

    @property
    def turns(self) -> int:
        """How many tensors are updated: how often its commonest in-place operation is called."""
        return max(self.names.count(name) for name in set(self.names) if name in IN_PLACE)


def update_loops(evidence: Evidence) -> list[UpdateLoop]:
    """Runs of at least `LEAST_RUN` updates by the program itself, half of them in place, none as an Adam makes them."""
    events = evidence.events
    rows = _outermost(evidence)
    names = [events.name_of(row).removeprefix("aten::") for row in rows.tolist()]
    inside = _within(evidence, rows)
    thread = events.thread[rows].tolist()
    found: list[UpdateLoop] = []
    run: list[int] = []
    for at in range(len(rows) + 1):
        ends = at == len(rows) or inside[at] or (at > 0 and thread[at] != thread[at - 1])
        if not ends and names[at] in UPDATES:
            run.append(at)
            continue
        if not ends and names[at] in FREE:
            continue
        loop = UpdateLoop(rows[run], tuple(names[one] for one in run))
        if _is_loop(loop):
            found.append(loop)
        run = [at] if at < len(rows) and not inside[at] and names[at] in UPDATES else []
    return found


def _is_loop(loop: UpdateLoop) -> bool:
    in_place = sum(name in IN_PLACE for name in loop.names)
    return len(loop.rows) >= LEAST_RUN and 2 * in_place >= len(loop.rows) and not set(ADAPTIVE) & set(loop.names)


def _outermost(evidence: Evidence) -> I8:
    """Operations of the recorded steps that no other is around, by thread and time."""
    events, steps = evidence.events, evidence.recorded_steps
    parent = evidence.priced.links.op_parent
    begin = steps.begins[0] if steps.begins else steps.start
    aten = np.array([name.startswith("aten::") for name in events.names], dtype=bool)
    wanted = (events.kind == Kind.OP) & aten[events.name] & (events.start_ns >= begin) & (events.start_ns < steps.stop)
    wanted &= (parent < 0) | ~aten[events.name[np.maximum(parent, 0)]]
    wanted &= ~_engine(evidence)
    rows = np.flatnonzero(wanted)
    return rows[np.lexsort((events.start_ns[rows], events.thread[rows]))]


def _engine(evidence: Evidence) -> NDArray[np.bool_]:
    """One flag a row: whether it lies within the backward pass."""
    events, parent = evidence.events, evidence.priced.links.op_parent
    named = np.array(["autograd::" in name or "Backward" in name for name in events.names], dtype=bool)
    found: NDArray[np.bool_] = (parent >= 0) & named[events.name[np.maximum(parent, 0)]]
    return found


def _within(evidence: Evidence, rows: I8) -> NDArray[np.bool_]:
    """One flag a row: whether it lies within an optimizer's step."""
    spans = optimizer_spans(evidence.events)
    return begun_inside(evidence.events, rows, spans, evidence.events.start_ns[spans])
