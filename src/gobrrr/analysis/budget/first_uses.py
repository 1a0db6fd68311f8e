"""First uses of kernels: loading, building and autotuning, within an operation before its launch or in the launch.

They do not belong to a steady step: the next launch of the same kernel takes microseconds. Where every step has first
uses, for example because its shapes change, they are part of the step.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.budget.idle import LOADING_NS
from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.events.intervals import NO_SPANS, Spans, covered, union
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.model.events import I8, EventKind, EventTable, Mask
from gobrrr.model.tree import HOST_KINDS

MOST_DEVICE_SHARE = 0.5
"""The largest share of a first use in which the device may work: otherwise the host waits for the device."""


def first_uses(events: EventTable, links: Links, steps: StepWindow) -> Spans:
    """Host time (recorded clock) of first launches that take at least `LOADING_NS` longer than a usual launch while the
    device idles; nothing where each of several steps has some."""
    works = np.flatnonzero((links.launch >= 0) & ~links.in_graph & (events.kind[links.device] == EventKind.KERNEL))
    if not len(works):
        return NO_SPANS
    order = works[np.argsort(events.start_ns[links.launch[works]], kind="stable")]
    launch = links.launch[order]
    first = np.unique(events.name[links.device[order]], return_index=True)[1]
    begins = np.column_stack([_before(events, links, order), events.start_ns[launch]])
    ends = np.column_stack([events.start_ns[launch], events.end_ns[launch]])
    usual = np.median(ends - begins, axis=0).astype(np.int64)
    begin, end = (begins[first] + usual).reshape(-1), ends[first].reshape(-1)
    long = end - begin >= LOADING_NS
    begin, end = begin[long], end[long]
    accepted = _idle(events, links, begin, end) & ~_compiling_or_collecting(events, begin, end)
    spans = union(begin[accepted], end[accepted])
    return spans if _absent_in_some_step(spans, steps) else NO_SPANS


def _before(events: EventTable, links: Links, order: I8) -> I8:
    """For each launch, the last begin or end of an event on its thread before it, within its operation; the launch's
    own begin where no operation is around it."""
    launch, op = links.launch[order], links.op[order]
    start = events.start_ns[launch]
    result = start.copy()
    rows = events.of(*HOST_KINDS)
    for thread in np.unique(events.thread[launch]).tolist():
        on_its_thread = rows[events.thread[rows] == thread]
        edges = np.unique(np.concatenate([events.start_ns[on_its_thread], events.end_ns[on_its_thread]]))
        on_thread = events.thread[launch] == thread
        at = np.searchsorted(edges, start[on_thread]) - 1
        result[on_thread] = np.where(at >= 0, edges[np.maximum(at, 0)], start[on_thread])
    row = np.maximum(op, 0)
    inside = (op >= 0) & (events.start_ns[row] <= result) & (events.end_ns[row] >= start)
    return np.where(inside, result, start)


def _idle(events: EventTable, links: Links, begin: I8, end: I8) -> Mask:
    busy = covered(union(events.start_ns[links.device], events.end_ns[links.device]), begin, end)
    result: Mask = busy <= MOST_DEVICE_SHARE * (end - begin)
    return result


def _compiling_or_collecting(events: EventTable, begin: I8, end: I8) -> Mask:
    """Whether most of a stretch is the compiler's or the garbage collector's, which have causes of their own."""
    call = classify(events.names)[events.name]
    rows = np.flatnonzero((call == HostCall.COMPILE) | (call == HostCall.COLLECT))
    spent = covered(union(events.start_ns[rows], events.end_ns[rows]), begin, end)
    result: Mask = 2 * spent > end - begin
    return result


def _absent_in_some_step(spans: Spans, steps: StepWindow) -> bool:
    """Whether some step has no first use, or only one step was recorded."""
    if len(steps.begins) < 2:
        return True
    return len(np.unique(np.searchsorted(np.array(steps.begins), spans.start, side="right"))) < len(steps.begins)
