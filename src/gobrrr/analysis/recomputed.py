"""Work of the forward pass that the backward pass does again: activation checkpointing.

Autograd's own backward operations run with grad mode off, and an operation that is dispatched with it off gets no
sequence number from the profiler. A checkpoint runs the forward pass again with grad mode on: operations with a
sequence number of their own inside the backward pass.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.evidence import Evidence
from gobrrr.model.events import I8

ENGINE = "autograd::engine"


REENTRANT = "CheckpointFunction"
"""The node of the form that runs a backward pass of its own within."""


def recomputed_calls(evidence: Evidence) -> I8:
    """Calls that repeat in a backward pass what the forward pass did.

    They stand beside a node's own backward work, which has grad mode off, or in a checkpoint's own node. With
    `create_graph=True` all work of a node has it on: that builds a graph and repeats nothing.
    """
    names = evidence.events.names
    if not any(name.startswith(ENGINE) for name in names):
        return np.empty(0, dtype=np.int64)
    known: dict[int, tuple[int, bool]] = {}
    plain: set[int] = set()
    again: list[tuple[int, int]] = []
    for call, row in enumerate(evidence.calls.op.tolist()):
        if row not in known:
            known[row] = _node(evidence, row)
        node, graded = known[row]
        if node >= 0 and graded:
            again.append((call, node))
        elif node >= 0:
            plain.add(node)
    mine = [call for call, node in again if node in plain or REENTRANT in evidence.events.name_of(node)]
    return np.array(mine, dtype=np.int64)


def _node(evidence: Evidence, row: int) -> tuple[int, bool]:
    """(the autograd node's event around a call, -1 outside of a backward pass; whether the call has grad mode on)."""
    graded = False
    for one in (row, *evidence.ancestors(row)) if row >= 0 else ():
        name = evidence.events.name_of(one)
        if name.startswith(ENGINE):
            return one, graded
        graded = graded or (name.startswith("aten::") and int(evidence.events.sequence[one]) >= 0)
    return -1, False
