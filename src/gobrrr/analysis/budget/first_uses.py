"""First uses of kernels: loading, building and autotuning, within an operation before its launch or in the launch.

They are no part of a steady step: once a kernel is there, its next launch takes microseconds. Where every step has
some, as one whose shapes change, they stay: a step then is like that.
"""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.budget.idle import LOADING_NS
from gobrrr.analysis.events.calls import Call, classify
from gobrrr.analysis.events.host_record import HOST_KINDS
from gobrrr.analysis.events.intervals import EMPTY, Spans, covered, union
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.steps import Steps
from gobrrr.model.events import I8, EventTable, Kind

WITHOUT_WORK = 0.5
"""A stretch in most of which the device works is a wait for it, and no first use."""


def first_uses(events: EventTable, links: Links, steps: Steps) -> Spans:
    """Host time (recorded clock) of the first launch of each kernel that takes `LOADING_NS` or more beyond a usual
    launch, while the device idles; nothing where every step of several has some."""
    works = np.flatnonzero((links.launch >= 0) & ~links.in_graph & (events.kind[links.device] == Kind.KERNEL))
    if not len(works):
        return EMPTY
    order = works[np.argsort(events.start_ns[links.launch[works]], kind="stable")]
    launch = links.launch[order]
    first = np.unique(events.name[links.device[order]], return_index=True)[1]
    begins = np.column_stack([_before(events, links, order), events.start_ns[launch]])
    ends = np.column_stack([events.start_ns[launch], events.end_ns[launch]])
    usual = np.median(ends - begins, axis=0).astype(np.int64)
    begin, end = (begins[first] + usual).reshape(-1), ends[first].reshape(-1)
    long = end - begin >= LOADING_NS
    begin, end = begin[long], end[long]
    told = _idle(events, links, begin, end) & ~_known(events, begin, end)
    found = union(begin[told], end[told])
    return found if _few(found, steps) else EMPTY


def _before(events: EventTable, links: Links, order: I8) -> I8:
    """For each launch the last begin or end of an event on its thread before it, within its operation; itself without
    an operation around it."""
    launch, op = links.launch[order], links.op[order]
    start = events.start_ns[launch]
    result = start.copy()
    rows = events.of(*HOST_KINDS)
    for thread in np.unique(events.thread[launch]).tolist():
        mine = rows[events.thread[rows] == thread]
        edges = np.unique(np.concatenate([events.start_ns[mine], events.end_ns[mine]]))
        here = events.thread[launch] == thread
        at = np.searchsorted(edges, start[here]) - 1
        result[here] = np.where(at >= 0, edges[np.maximum(at, 0)], start[here])
    row = np.maximum(op, 0)
    inside = (op >= 0) & (events.start_ns[row] <= result) & (events.end_ns[row] >= start)
    return np.where(inside, result, start)


def _idle(events: EventTable, links: Links, begin: I8, end: I8) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    busy = covered(union(events.start_ns[links.device], events.end_ns[links.device]), begin, end)
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = busy <= WITHOUT_WORK * (end - begin)
    return result


def _known(events: EventTable, begin: I8, end: I8) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether most of a stretch is an event of the compiler's or the collector's, which are told as such."""
    call = classify(events.names)[events.name]
    rows = np.flatnonzero((call == Call.COMPILE) | (call == Call.COLLECT))
    told = covered(union(events.start_ns[rows], events.end_ns[rows]), begin, end)
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = 2 * told > end - begin
    return result


def _few(found: Spans, steps: Steps) -> bool:
    """Whether a step without first uses was recorded, or one step alone."""
    if len(steps.begins) < 2:
        return True
    return len(np.unique(np.searchsorted(np.array(steps.begins), found.start, side="right"))) < len(steps.begins)
