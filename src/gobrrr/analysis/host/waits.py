"""Where the host waits for the device, which operation causes the wait, and whether work of the same step follows."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.loops import find_loops
from gobrrr.model.events import I8, EventKind

LEAST_EXPERT_WAITS = 8
"""The least number of waits per step that make a loop over experts; a matmul lies between one wait and the next."""

MOST_EXPERT_MATMULS = 4
"""The most matmuls of an expert: a gate, two products, and one for a shared part."""

READING = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
"""Operations that only read a value."""

SELECTING = ("nonzero", "masked_select")
"""Operations that select the rows of an expert."""
PUT_BACK = ("index_add_", "index_add", "index_put_", "index_copy_", "scatter_add_", "scatter_", "scatter_reduce_")
"""Operations that put an expert's result into the output."""

SYNCHRONIZING_OPS = (
    "item", "is_nonzero", "nonzero", "equal", "allclose", "masked_select", "_unique", "_unique2",
    "unique_consecutive", "unique_dim", "repeat_interleave", "bincount", "_local_scalar_dense",
)  # fmt: skip
"""Operations that make the host wait for their result."""


def waits_of(evidence: Evidence) -> I8:
    """Rows of the calls in the recorded steps that block the host until the device is done, by start.

    These are synchronizations, and copies from the device to pageable memory, which return when the data has arrived.
    """
    events, links, steps = evidence.events, evidence.priced.links, evidence.recorded_steps
    call = classify(events.names)
    waits = (events.kind == EventKind.RUNTIME) & (call[events.name] == HostCall.WAIT)
    pageable = np.array(["Device -> Pageable" in name for name in events.names], dtype=bool)
    copies = (links.launch >= 0) & pageable[events.name[links.device]]
    waits[links.launch[copies]] = True
    return np.flatnonzero(waits & (events.start_ns >= steps.start) & (events.start_ns < steps.stop))


def inner_waits(evidence: Evidence) -> I8:
    """Waits with later work in the same step, or with any later work where an operation causes them.

    The other waits end a step: a benchmark or the profiler synchronizes there.
    """
    waits = waits_of(evidence)
    events, links, steps = evidence.events, evidence.priced.links, evidence.recorded_steps
    launches = np.sort(events.start_ns[links.launch[links.launch >= 0]])
    if not len(waits) or not len(launches):
        return waits[:0]
    edges = np.array([*(steps.begins or (steps.start,)), steps.stop])
    step = np.searchsorted(edges[:-1], events.start_ns[waits], side="right")
    following = np.searchsorted(launches, events.end_ns[waits])
    more = following < len(launches)
    same_step = more & (launches[np.minimum(following, len(launches) - 1)] < edges[step])
    caused = np.array([cause_of(evidence, row) is not None for row in waits.tolist()], dtype=bool)
    inner: I8 = waits[same_step | (more & caused)]
    return inner


def cause_of(evidence: Evidence, wait: int) -> int | None:
    """The operation that causes a wait: the outermost of `SYNCHRONIZING_OPS` around it, else the outermost aten
    operation."""
    operation, is_cause = None, False
    for row in evidence.ancestors(wait):
        name = evidence.events.name_of(row)
        if not name.startswith("aten::"):
            continue
        cause = name.removeprefix("aten::") in SYNCHRONIZING_OPS
        if cause or not is_cause:
            operation, is_cause = row, is_cause or cause
    return operation


def selecting(evidence: Evidence, waits: I8) -> I8:
    """Those of `waits` in which the program selects rows: `torch.where(idx == e)`, `x[mask]`."""
    causes = [cause_of(evidence, row) for row in waits.tolist()]
    wanted = [
        cause is not None and evidence.events.name_of(cause).removeprefix("aten::") in SELECTING for cause in causes
    ]
    chosen: I8 = waits[np.array(wanted, dtype=bool)]
    return chosen


def expert_loop(evidence: Evidence, waits: I8) -> float | None:
    """Turns per step of a loop over experts: each selects its rows, multiplies them, and puts the result back; None if
    there are fewer than `LEAST_EXPERT_WAITS`.

    A loop that reads numbers instead, or that multiplies as often as a whole model, decodes or searches: its turns need
    each other's results. Loops with this property in a live run are excluded as well.
    """
    events, links = evidence.events, evidence.priced.links
    waits = selecting(evidence, waits)
    if len(waits) < LEAST_EXPERT_WAITS:
        return None
    for loop in find_loops(evidence):
        if loop.depends == "yes":
            waits = waits[(events.start_ns[waits] < loop.begins[0]) | (events.start_ns[waits] >= loop.stop)]
    matmul = np.array([group.work.family == "matmul" for group in evidence.priced.groups] or [False])
    launched = matmul[evidence.priced.group] & (links.launch >= 0)
    matmuls = np.sort(events.start_ns[links.launch[launched]])
    products = np.diff(np.searchsorted(matmuls, np.sort(events.start_ns[waits])))
    looped = float((products > 0).sum()) / evidence.recorded_steps.count
    if looped < LEAST_EXPERT_WAITS or np.median(products[products > 0]) > MOST_EXPERT_MATMULS:
        return None
    return looped if _put_back(evidence) >= looped / 2 else None


def _put_back(evidence: Evidence) -> float:
    """Operations per step that put rows into a tensor."""
    events, steps = evidence.events, evidence.recorded_steps
    kinds = np.array([name.removeprefix("aten::") in PUT_BACK for name in events.names] or [False], dtype=bool)
    start = events.start_ns[np.flatnonzero(kinds[events.name] & (events.kind == EventKind.OP))]
    return float(((start >= steps.start) & (start < steps.stop)).sum()) / steps.count


def reading_ops(evidence: Evidence, waits: I8) -> I8:
    """The operations around the waits that only read a value: rows, each once."""
    causes = [cause_of(evidence, row) for row in waits.tolist()]
    known = sorted({row for row in causes if row is not None})
    return np.array([row for row in known if evidence.events.name_of(row) in READING], dtype=np.int64)
