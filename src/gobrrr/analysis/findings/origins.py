"""Which forward operation a backward operation differentiates, by autograd's sequence numbers."""

from __future__ import annotations

import numpy as np

from gobrrr.model.events import ABSENT, I8, EventKind, EventTable
from gobrrr.model.tree import outermost

AUTOGRAD_NODE = "autograd::engine::evaluate_function"
"""The event around all work of one node of the backward pass."""


def forward_ops(events: EventTable, parent: I8) -> I8:
    """For each row within a node of the backward pass, the operation that made the node; -1 for all others.

    `parent`: the host event around each row. A node carries the sequence number of the operation that made it. Numbers
    repeat where several threads run forward passes; then the last such operation before the node counts.
    """
    node = _nodes(events, parent)
    result = np.full(len(events), ABSENT, dtype=np.int64)
    if not (node >= 0).any():
        return result
    ops = events.of(EventKind.OP)
    ops = ops[(events.sequence[ops] >= 0) & (node[ops] < 0)]
    ops = ops[np.lexsort((events.start_ns[ops], events.sequence[ops]))]
    nodes = np.unique(node[node >= 0])
    maker = np.full(len(events), ABSENT, dtype=np.int64)
    # sorted by number and then by time: the last one that is not later than (number, begin of the node)
    keys = list(zip(events.sequence[ops].tolist(), events.start_ns[ops].tolist(), strict=True))
    order = np.array(keys, dtype=[("number", np.int64), ("start", np.int64)]) if keys else None
    if order is None:
        return result
    wanted = np.array(
        list(zip(events.sequence[nodes].tolist(), events.start_ns[nodes].tolist(), strict=True)), dtype=order.dtype
    )
    at = np.searchsorted(order, wanted, side="right") - 1
    known = (at >= 0) & (events.sequence[ops[np.maximum(at, 0)]] == events.sequence[nodes])
    known &= events.sequence[nodes] >= 0
    maker[nodes[known]] = ops[at[known]]
    inside = node >= 0
    result[inside] = maker[node[inside]]
    return result


def _nodes(events: EventTable, parent: I8) -> I8:
    """For each row, the outermost node of the backward pass around it, itself included; -1 for those in none."""
    is_node = np.array([name.startswith(AUTOGRAD_NODE) for name in events.names] or [False], dtype=bool)
    return outermost(parent, is_node[events.name] & (events.kind == EventKind.OP))
