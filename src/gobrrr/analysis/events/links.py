"""Device work -> the call that launched it -> the operation that owns it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.model.events import ABSENT, I8, EventKind, EventTable, Mask
from gobrrr.model.tree import parents

GRAPH_LAUNCH = ("cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch")
"""Calls that launch a captured graph."""


@dataclass(frozen=True)
class Links:
    """Rows into the event table; -1 where there is no such event.

    `device`: rows of device work, by start. `launch`, `op`: for each of them, the runtime call that launched it and the
    innermost operation around that call. `op_parent`: for each row of the table, the operation around it. `in_graph`:
    the work was launched as part of a CUDA or HIP graph, so that no operation owns it.
    """

    device: I8
    launch: I8
    op: I8
    op_parent: I8
    in_graph: Mask

    def before(self, rows: int) -> Links:
        """The links among the first `rows` rows of the table."""
        kept = self.device < rows

        def inside(column: I8) -> I8:
            return np.where(column < rows, column, ABSENT)

        return Links(
            device=self.device[kept],
            launch=inside(self.launch[kept]),
            op=inside(self.op[kept]),
            op_parent=inside(self.op_parent[:rows]),
            in_graph=self.in_graph[kept],
        )

    @property
    def launched(self) -> float:
        """Share of device work whose launch is in the trace."""
        return float((self.launch >= 0).mean()) if len(self.launch) else 0.0


def link(events: EventTable) -> Links:
    """Join by correlation and enclosure; by external id where no launch, or no operation around it, is recorded."""
    device = events.on_device
    launch = launches(events, device)
    around = parents(events, EventKind.OP, EventKind.RUNTIME)
    op = np.full(len(device), ABSENT, dtype=np.int64)
    known = launch >= 0
    op[known] = _operation(events, around, launch[known])
    lacking = op == ABSENT
    op[lacking] = _by_external_id(events, device[lacking])
    graph = np.array([name.startswith(GRAPH_LAUNCH) for name in events.names], dtype=bool)
    in_graph = np.zeros(len(device), dtype=bool)
    if len(graph):
        in_graph[known] = graph[events.name[launch[known]]]
    # the operation around a graph launch, if any, does not say what its kernels do
    op[in_graph] = ABSENT
    return Links(device, launch, op, _operation_parent(events, around), in_graph)


def launches(events: EventTable, device: I8) -> I8:
    """For each piece of work (rows `device`) the runtime call that launched it, by correlation; -1 for none."""
    runtime = events.of(EventKind.RUNTIME)
    runtime = runtime[events.correlation[runtime] > 0]
    wanted = events.correlation[device]
    if not len(runtime):
        return np.full(len(device), ABSENT, dtype=np.int64)
    keys = events.correlation[runtime]
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], wanted)
    at = np.minimum(at, len(order) - 1)
    matches = (keys[order][at] == wanted) & (wanted > 0)
    return np.where(matches, runtime[order][at], ABSENT)


def _operation(events: EventTable, around: I8, rows: I8) -> I8:
    """The innermost operation around each row (runtime calls may nest in each other)."""
    # follow nested calls outward in doubling steps: calls of one instant may nest thousands deep
    outward = np.append(np.where(events.kind == EventKind.RUNTIME, around, np.arange(len(around))), ABSENT)
    while not np.array_equal(farther := outward[outward], outward):
        outward = farther
    result: I8 = outward[around[rows]]
    return result


def _operation_parent(events: EventTable, around: I8) -> I8:
    rows = np.flatnonzero(around >= 0)
    result = np.full(len(around), ABSENT, dtype=np.int64)
    result[rows] = _operation(events, around, rows)
    return result


def _by_external_id(events: EventTable, device: I8) -> I8:
    """The operation with the kernel's external id, unless traces repeat the correlation id there (torch of 2022)."""
    ops = events.of(EventKind.OP)
    ops = ops[events.external_id[ops] > 0]
    wanted = events.external_id[device]
    result = np.full(len(device), ABSENT, dtype=np.int64)
    if not len(ops) or not len(device):
        return result
    repeated = (wanted == events.correlation[device]) & (wanted > 0)
    if repeated.mean() > 0.5:
        return result
    keys = events.external_id[ops]
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)
    matches = (keys[order][at] == wanted) & (wanted > 0)
    return np.where(matches, ops[order][at], ABSENT)


def launch_call_ns(events: EventTable, launch: I8) -> float | None:
    """The median recorded duration of those of the calls (rows) that launch kernels; None where there are none."""
    named = np.array(["LaunchKernel" in name for name in events.names], dtype=bool)
    rows = launch[named[events.name[launch]]]
    return float(np.median(events.duration_ns[rows])) if len(rows) else None
