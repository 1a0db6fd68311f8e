"""Device work that an optimizer launches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.intervals import inside_spans, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8, EventTable, Kind

STEP = "Optimizer.step#"

BACKWARD = "autograd::engine::evaluate_function"

LISTS = ("_foreach_", "_fused_")
"""Operations that take all parameters at once."""

UPDATES = ("mul_", "add_", "addcmul_", "addcdiv_", "lerp_", "sqrt", "div", "div_", "sub_", "copy_", "neg", "mul", "add",
           "sign_", "zero_", "fill_", "clamp_", "maximum", "rsqrt", "sign", "pow", "reciprocal")  # fmt: skip
"""Pointwise operations of which an update is made."""

IN_PLACE = ("addcmul_", "addcdiv_", "lerp_", "add_", "mul_", "sub_")

ADAPTIVE = ("addcdiv_", "addcmul_", "sqrt", "rsqrt", "sign", "sign_", "neg", "pow", "maximum", "clamp_", "reciprocal")
"""Of which an optimizer makes its updates, and an average over weights or a sum of metrics does not."""

LEAST_RUN = 60
"""Calls in a row, without an annotation, for a run of updates: 20 parameters of three operations each."""

FUSED_PASSES = 7 / 20
"""Of the bytes of an AdamW written out (20 reads and writes of a parameter's size: mul, lerp, mul, addcmul, sqrt, div,
add, addcdiv) a fused one moves 7: parameter, gradient and two moments in, three out. SGD's share is larger (5/8)."""


@dataclass(frozen=True)
class Updates:
    """Work by index into `links.device`. `annotated`: it lies within the optimizer's own annotation."""

    work: I8
    annotated: bool


def find_updates(evidence: Evidence) -> Updates:
    """What was launched within `Optimizer.step`; without such annotations, long runs of calls as an Adam makes them."""
    annotated = _annotated(evidence)
    return Updates(annotated, True) if len(annotated) else Updates(_runs(evidence), False)


def lists_of_adam(evidence: Evidence) -> I8:
    """The updates of an Adam that goes over all parameters once for each of its operations, as torch does by itself on
    a GPU; none where it is another optimizer, or fused."""
    found = evidence.updates
    names = [evidence.events.name_of(row) for row in evidence.priced.links.op[found.work].tolist()]
    listed = found.work[[name.startswith("aten::_foreach_") for name in names]]
    adam = found.annotated and "aten::_foreach_addcdiv_" in names and "aten::_foreach_addcmul_" in names
    return listed if adam else listed[:0]


def calls_of_lists(evidence: Evidence) -> int:
    """How often one step of an optimizer calls the same operation on a list of parameters: once a group of them."""
    events = evidence.events
    spans = optimizer_spans(events)
    named = np.array([any(part in name for part in LISTS) for name in events.names] or [False], dtype=bool)
    rows = np.flatnonzero(named[events.name] & (events.kind == Kind.OP))
    rows = rows[begun_inside(events, rows, spans, _updates_begin(events, spans))]
    return int(np.bincount(events.name[rows]).max()) // len(spans) if len(rows) else 0


def optimizer_spans(events: EventTable) -> I8:
    """Rows of the annotations of optimizers' steps."""
    named = np.array([name.startswith(STEP) for name in events.names], dtype=bool)
    return np.flatnonzero(named[events.name] & np.isin(events.kind, (Kind.ANNOTATION, Kind.OP)))


def _annotated(evidence: Evidence) -> I8:
    events, links = evidence.events, evidence.priced.links
    spans = optimizer_spans(events)
    launch = np.maximum(links.launch, 0)
    inside = begun_inside(events, launch, spans, _updates_begin(events, spans)) & (links.launch >= 0)
    return np.flatnonzero(inside & (links.op >= 0) & _in_steps(evidence, launch))


def begun_inside(events: EventTable, rows: I8, spans: I8, begins: I8) -> NDArray[np.bool_]:
    """Whether each row begins inside one of `spans` of its own thread; `begins`: from when on each span counts."""
    result = np.zeros(len(rows), dtype=bool)
    for thread in np.unique(events.thread[spans]):
        mine = events.thread[spans] == thread
        there = np.flatnonzero(events.thread[rows] == thread)
        result[there] = inside_spans(events.start_ns[rows[there]], *union(begins[mine], events.end_ns[spans[mine]]))
    return result


def _updates_begin(events: EventTable, spans: I8) -> I8:
    """When the updates within each span begin: after the last backward pass of a closure that it was given.

    `optimizer.step(closure)` runs forward and backward pass within the annotation, as Lightning does in every step.
    """
    named = np.array([name.startswith(BACKWARD) for name in events.names], dtype=bool)
    rows = np.flatnonzero(named[events.name] & (events.kind == Kind.OP))
    starts, ends = events.start_ns[rows], events.end_ns[rows]
    begins = events.start_ns[spans]
    first, last = np.searchsorted(starts, begins), np.searchsorted(starts, events.end_ns[spans])
    for at in np.flatnonzero(last > first).tolist():
        begins[at] = ends[first[at] : last[at]].max()
    return begins


def _in_steps(evidence: Evidence, launch: I8) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    steps, start = evidence.recorded_steps, evidence.events.start_ns[launch]
    return (start >= (steps.begins[0] if steps.begins else steps.start)) & (start < steps.stop)


def _runs(evidence: Evidence) -> I8:
    events, links = evidence.events, evidence.priced.links
    ops = [events.name_of(row).removeprefix("aten::") if row >= 0 else "" for row in links.op.tolist()]
    found: list[int] = []
    run: list[int] = []
    for at, op in enumerate([*ops, ""]):
        if op in UPDATES:
            run.append(at)
            continue
        in_place = sum(ops[one] in IN_PLACE for one in run)
        if len(run) >= LEAST_RUN and 2 * in_place >= len(run) and any(ops[one] in ADAPTIVE for one in run):
            found += run
        run = []
    return np.array(found, dtype=np.int64)
