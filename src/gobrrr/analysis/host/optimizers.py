"""Device work of optimizers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.intervals import inside_spans, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.origins import AUTOGRAD_NODE
from gobrrr.model.events import I8, EventKind, EventTable

OPTIMIZER_STEP = "Optimizer.step#"
"""torch's annotation of an optimizer's step begins with this."""

LIST_OPS = ("_foreach_", "_fused_")
"""Operations on a list of all parameters."""

UPDATE_OPS = ("mul_", "add_", "addcmul_", "addcdiv_", "lerp_", "sqrt", "div", "div_", "sub_", "copy_", "neg", "mul",
              "add", "sign_", "zero_", "fill_", "clamp_", "maximum", "rsqrt", "sign", "pow", "reciprocal")  # fmt: skip
"""Pointwise operations of an update."""

IN_PLACE_OPS = ("addcmul_", "addcdiv_", "lerp_", "add_", "mul_", "sub_")
"""Those of them that write a parameter or a state in place."""

ADAPTIVE_OPS = (
    "addcdiv_",
    "addcmul_",
    "sqrt",
    "rsqrt",
    "sign",
    "sign_",
    "neg",
    "pow",
    "maximum",
    "clamp_",
    "reciprocal",
)
"""Operations of adaptive optimizers, which averages over weights and sums of metrics do not use."""

LEAST_UPDATE_RUN = 60
"""Consecutive update operations that make a run, without an annotation: 20 parameters with three operations each."""

FUSED_PASSES = 7 / 20
"""The bytes of a fused AdamW over those of separate operations. These read and write a parameter's size 20 times (mul,
lerp, mul, addcmul, sqrt, div, add, addcdiv), a fused AdamW 7 times: it reads parameter, gradient and two moments, and
writes three of them. SGD's ratio is larger (5/8)."""


@dataclass(frozen=True)
class Updates:
    """Work of optimizers, by index into `links.device`. `annotated`: known by the optimizers' own annotations."""

    work: I8
    annotated: bool


def find_updates(evidence: Evidence) -> Updates:
    """The work launched within `Optimizer.step`; without such annotations, long runs of an Adam's operations."""
    annotated = _annotated(evidence)
    return Updates(annotated, True) if len(annotated) else Updates(_runs(evidence), False)


def lists_of_adam(evidence: Evidence) -> I8:
    """The updates of an Adam that runs each of its operations on the list of all parameters, which is torch's default
    on a GPU; none for another optimizer, or a fused one."""
    updates = evidence.updates
    names = [evidence.events.name_of(row) for row in evidence.priced.links.op[updates.work].tolist()]
    listed = updates.work[[name.startswith("aten::_foreach_") for name in names]]
    adam = updates.annotated and "aten::_foreach_addcdiv_" in names and "aten::_foreach_addcmul_" in names
    return listed if adam else listed[:0]


def calls_of_lists(evidence: Evidence) -> int:
    """How often an optimizer's step calls the same operation on a list of parameters: once per parameter group."""
    events = evidence.events
    spans = optimizer_spans(events)
    named = np.array([any(part in name for part in LIST_OPS) for name in events.names] or [False], dtype=bool)
    rows = np.flatnonzero(named[events.name] & (events.kind == EventKind.OP))
    rows = rows[begun_inside(events, rows, spans, _updates_begin(events, spans))]
    return int(np.bincount(events.name[rows]).max()) // len(spans) if len(rows) else 0


def optimizer_spans(events: EventTable) -> I8:
    """Rows of the annotations of optimizers' steps."""
    named = np.array([name.startswith(OPTIMIZER_STEP) for name in events.names], dtype=bool)
    return np.flatnonzero(named[events.name] & np.isin(events.kind, (EventKind.ANNOTATION, EventKind.OP)))


def _annotated(evidence: Evidence) -> I8:
    events, links = evidence.events, evidence.priced.links
    spans = optimizer_spans(events)
    launch = np.maximum(links.launch, 0)
    inside = begun_inside(events, launch, spans, _updates_begin(events, spans)) & (links.launch >= 0)
    return np.flatnonzero(inside & (links.op >= 0) & _in_steps(evidence, launch))


def begun_inside(events: EventTable, rows: I8, spans: I8, begins: I8) -> NDArray[np.bool_]:
    """Whether each row begins inside one of `spans` of its own thread. `begins`: where each span begins to count."""
    result = np.zeros(len(rows), dtype=bool)
    for thread in np.unique(events.thread[spans]):
        spans_here = events.thread[spans] == thread
        rows_here = np.flatnonzero(events.thread[rows] == thread)
        result[rows_here] = inside_spans(
            events.start_ns[rows[rows_here]], *union(begins[spans_here], events.end_ns[spans[spans_here]])
        )
    return result


def _updates_begin(events: EventTable, spans: I8) -> I8:
    """When the updates within each span begin: after the last backward pass of a closure.

    `optimizer.step(closure)` runs forward and backward pass within the annotation; Lightning always does this.
    """
    named = np.array([name.startswith(AUTOGRAD_NODE) for name in events.names], dtype=bool)
    rows = np.flatnonzero(named[events.name] & (events.kind == EventKind.OP))
    starts, ends = events.start_ns[rows], events.end_ns[rows]
    begins = events.start_ns[spans]
    first, last = np.searchsorted(starts, begins), np.searchsorted(starts, events.end_ns[spans])
    for at in np.flatnonzero(last > first).tolist():
        begins[at] = ends[first[at] : last[at]].max()
    return begins


def _in_steps(evidence: Evidence, launch: I8) -> NDArray[np.bool_]:
    steps, start = evidence.recorded_steps, evidence.events.start_ns[launch]
    return (start >= (steps.begins[0] if steps.begins else steps.start)) & (start < steps.stop)


def _runs(evidence: Evidence) -> I8:
    events, links = evidence.events, evidence.priced.links
    ops = [events.name_of(row).removeprefix("aten::") if row >= 0 else "" for row in links.op.tolist()]
    updates: list[int] = []
    run: list[int] = []
    for at, op in enumerate([*ops, ""]):
        if op in UPDATE_OPS:
            run.append(at)
            continue
        in_place = sum(ops[index] in IN_PLACE_OPS for index in run)
        if (
            len(run) >= LEAST_UPDATE_RUN
            and 2 * in_place >= len(run)
            and any(ops[index] in ADAPTIVE_OPS for index in run)
        ):
            updates += run
        run = []
    return np.array(updates, dtype=np.int64)
