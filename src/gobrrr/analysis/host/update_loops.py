"""Loops on the host that update many tensors one by one outside an optimizer's step: averages of weights, metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.optimizers import (
    ADAPTIVE_OPS,
    IN_PLACE_OPS,
    LEAST_UPDATE_RUN,
    UPDATE_OPS,
    begun_inside,
    optimizer_spans,
)
from gobrrr.model.events import I8, EventKind

VIEW_OPS = (
    "detach", "detach_", "view", "alias", "t", "transpose", "select", "slice", "unsqueeze", "squeeze", "expand",
    "as_strided", "reshape", "to", "lift_fresh", "item", "_local_scalar_dense", "narrow", "view_as", "unbind",
)  # fmt: skip
"""Operations that compute nothing: a loop continues through them."""


@dataclass(frozen=True)
class UpdateLoop:
    """One loop: its operations, as rows of the host's timeline in order, and their names."""

    rows: I8
    names: tuple[str, ...]

    @property
    def turns(self) -> int:
        """How many tensors are updated: the calls of the most frequent in-place operation, else of the rarest one."""
        times = Counter(self.names)
        return max((times[name] for name in times if name in IN_PLACE_OPS), default=min(times.values()))


def update_loops(evidence: Evidence) -> list[UpdateLoop]:
    """Runs of at least `LEAST_RUN` updates by the program itself, without operations of adaptive optimizers.

    At least half of the updates are in place, or a live run shows that they are one loop of independent turns.
    """
    events = evidence.events
    rows = _outermost(evidence)
    names = [events.name_of(row).removeprefix("aten::") for row in rows.tolist()]
    inside = _within(evidence, rows)
    thread = events.thread[rows].tolist()
    loops: list[UpdateLoop] = []
    run: list[int] = []
    for at in range(len(rows) + 1):
        ends = at == len(rows) or inside[at] or (at > 0 and thread[at] != thread[at - 1])
        if not ends and names[at] in UPDATE_OPS:
            run.append(at)
            continue
        if not ends and names[at] in VIEW_OPS:
            continue
        if len(run) >= LEAST_UPDATE_RUN and not any(names[index] in ADAPTIVE_OPS for index in run):
            loop = UpdateLoop(rows[run], tuple(names[index] for index in run))
            if _in_place(loop) or _apart(evidence, loop):
                loops.append(loop)
        run = [at] if at < len(rows) and not inside[at] and names[at] in UPDATE_OPS else []
    return loops


def _in_place(loop: UpdateLoop) -> bool:
    return 2 * sum(name in IN_PLACE_OPS for name in loop.names) >= len(loop.names)


def _apart(evidence: Evidence, loop: UpdateLoop) -> bool:
    """Whether it is one loop of the program, in which no turn needs another turn's result."""
    if evidence.profile.seen is None or evidence.profile.seen.loops is None:
        return False
    calls = evidence.dispatched[loop.rows]
    first, last = int(calls.min()), int(calls.max())
    return first >= 0 and any(
        seen.depends == "no" and seen.turns[0] <= first and last < seen.turns[-1]
        for seen in evidence.profile.seen.loops
    )


def _outermost(evidence: Evidence) -> I8:
    """Operations of the recorded steps within no other operation, by thread and time."""
    events, steps = evidence.events, evidence.recorded_steps
    parent = evidence.priced.links.op_parent
    begin = steps.begins[0] if steps.begins else steps.start
    aten = np.array([name.startswith("aten::") for name in events.names], dtype=bool)
    wanted = (
        (events.kind == EventKind.OP) & aten[events.name] & (events.start_ns >= begin) & (events.start_ns < steps.stop)
    )
    wanted &= (parent < 0) | ~aten[events.name[np.maximum(parent, 0)]]
    wanted &= ~_engine(evidence)
    rows = np.flatnonzero(wanted)
    return rows[np.lexsort((events.start_ns[rows], events.thread[rows]))]


def _engine(evidence: Evidence) -> NDArray[np.bool_]:
    """For each row, whether it lies within the backward pass."""
    events, parent = evidence.events, evidence.priced.links.op_parent
    named = np.array(["autograd::" in name or "Backward" in name for name in events.names], dtype=bool)
    inside: NDArray[np.bool_] = (parent >= 0) & named[events.name[np.maximum(parent, 0)]]
    return inside


def _within(evidence: Evidence, rows: I8) -> NDArray[np.bool_]:
    """For each row, whether it lies within an optimizer's step."""
    spans = optimizer_spans(evidence.events)
    return begun_inside(evidence.events, rows, spans, evidence.events.start_ns[spans])
