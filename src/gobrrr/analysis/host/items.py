"""Turns of a loader that runs in the program's thread, and whether they index a data set in memory item by item; the
start of worker processes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.budget.idle import HOST_OP_NS
from gobrrr.analysis.events.intervals import Spans, clip, covered, union
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8, EventKind

SINGLE_PROCESS_LOADER = "_SingleProcessDataLoaderIter"
"""In the names of a turn of a loader without workers."""
PICKS = frozenset(
    f"aten::{name}"
    for name in ("select", "slice", "narrow", "index", "index_select", "unsqueeze", "view", "as_strided", "detach")
)
"""Operations that take an item out of a tensor."""
JOINS = frozenset({"aten::stack", "aten::cat"})
"""Operations that join many items to one tensor."""
LEAST_ITEMS = 2
"""The least number of items in a batch."""
LEAST_PICKING_SHARE = 0.5
"""The least share of a batch's time that is spent on picking and joining items, rather than on making them."""

_COLLATES = re.compile(r"torch/utils/data/_utils/collate\.py\(\d+\): ")
_STARTS = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): _get_iterator$")
_ENDS = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): _shutdown_workers$")
_PROCESS = re.compile(r"multiprocessing/process\.py\(\d+\): start$")
"""Frames that join items to a batch, start and end the workers of a loader, and start a process."""


@dataclass(frozen=True)
class Items:
    """Turns that index item by item, as recorded. `items`: per batch. `picking`: the share of the turns' time that is
    spent on picking and joining; `copying`: the share of the one copy that every batch needs."""

    turns: Spans
    items: float
    picking: float
    copying: float


def indexed(evidence: Evidence) -> Items | None:
    """The loader's turns that pick and join items one by one; None where making the items takes most of the time, or
    an item takes as long as an operation that counts as computing on the host (`HOST_OP_NS`).
    """
    turns = _inside(
        evidence, [SINGLE_PROCESS_LOADER in name for name in evidence.events.names], EventKind.OP, EventKind.ANNOTATION
    )
    spans = _spans(evidence, turns)
    joins, picks = (_outermost(evidence, spans, names) for names in (JOINS, PICKS))
    if not len(joins) or not spans.length:
        return None
    below = _below(evidence, joins)
    unsqueezed = int((evidence.events.name[below] == _id(evidence, "aten::unsqueeze")).sum())
    items = max(len(picks), unsqueezed) / len(joins)
    collating = _inside(evidence, [bool(_COLLATES.match(name)) for name in evidence.events.names], EventKind.PYTHON)
    length = evidence.events.duration_ns
    picking = float(covered(spans, *_spans(evidence, np.concatenate([joins, picks, collating]))).sum())
    copies = below[evidence.events.name[below] == _id(evidence, "aten::cat")]
    copying = float(length[copies].sum()) if len(copies) else float(length[joins].sum())
    batches = max(len(turns), 1)
    if (
        items < LEAST_ITEMS
        or picking < LEAST_PICKING_SHARE * spans.length
        or spans.length / batches / items >= HOST_OP_NS
    ):
        return None
    return Items(spans, items, picking / spans.length, min(copying, picking) / spans.length)


def starts(evidence: Evidence) -> Spans:
    """When the step starts and ends a loader's worker processes, as recorded; known only from Python frames."""
    names = evidence.events.names
    begun = _inside(evidence, [bool(_STARTS.search(name)) for name in names], EventKind.PYTHON)
    started = _inside(evidence, [bool(_PROCESS.search(name)) for name in names], EventKind.PYTHON)
    events = evidence.events
    first = np.sort(events.start_ns[started])
    holds = np.searchsorted(first, events.end_ns[begun]) > np.searchsorted(first, events.start_ns[begun])
    ended = _inside(evidence, [bool(_ENDS.search(name)) for name in names], EventKind.PYTHON)
    return _spans(evidence, np.concatenate([begun[holds], ended] if holds.any() else [begun[holds]]))


def _inside(evidence: Evidence, wanted: list[bool], *kinds: EventKind) -> I8:
    """Rows of the recorded steps whose names are wanted (a flag per name)."""
    events, steps = evidence.events, evidence.recorded_steps
    rows = events.of(*kinds)
    rows = rows[np.array(wanted, dtype=bool)[events.name[rows]]]
    inside_steps: I8 = rows[(events.start_ns[rows] >= steps.start) & (events.start_ns[rows] < steps.stop)]
    return inside_steps


def _spans(evidence: Evidence, rows: I8) -> Spans:
    steps = evidence.recorded_steps
    return clip(union(evidence.events.start_ns[rows], evidence.events.end_ns[rows]), steps.start, steps.stop)


def _outermost(evidence: Evidence, spans: Spans, names: frozenset[str]) -> I8:
    """Operations of these names within the spans that no other operation, except a turn, calls."""
    events, parent = evidence.events, evidence.priced.links.op_parent
    rows = _inside(evidence, [name in names for name in events.names], EventKind.OP)
    rows = rows[covered(spans, events.start_ns[rows], events.end_ns[rows]) > 0]
    above = parent[rows]
    called = (above >= 0) & (events.kind[np.maximum(above, 0)] == EventKind.OP)
    is_turn = np.array([SINGLE_PROCESS_LOADER in name for name in events.names], dtype=bool)
    outer: I8 = rows[~called | is_turn[events.name[np.maximum(above, 0)]]]
    return outer


def _below(evidence: Evidence, rows: I8) -> I8:
    children: I8 = np.flatnonzero(np.isin(evidence.priced.links.op_parent, rows))
    return children


def _id(evidence: Evidence, name: str) -> int:
    return evidence.events.names.index(name) if name in evidence.events.names else -1
