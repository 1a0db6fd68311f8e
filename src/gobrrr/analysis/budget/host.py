"""The budget of a trace without device work: what the busiest host thread did."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.budget.idle import COMPILE_CAUSE, INPUT_CAUSE, PYTHON_CAUSE, UNEXPLAINED, UNSEEN_NS
from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.events.intervals import NO_SPANS, Spans, clip, complement, subtract, union
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.tree import STEP_MARK


def host_budget(events: EventTable, steps: StepWindow) -> dict[tuple[str, str | None], float]:
    """(line, cause) -> ns per step. Operations of the busiest thread are work without a floor; the rest is overhead.

    A CPU's operations run inside their dispatch, so a trace can't tell the two apart.
    """
    thread = _busiest(events)
    on_thread = events.thread == thread
    call = classify(events.names)[events.name]
    marked = np.array([name.startswith(STEP_MARK) for name in events.names], dtype=bool)
    lines: dict[tuple[str, str | None], float] = {}
    taken = NO_SPANS
    for key, mask in (
        (("overhead", INPUT_CAUSE), on_thread & (call == HostCall.INPUT)),
        (("overhead", COMPILE_CAUSE), on_thread & (call == HostCall.COMPILE)),
        (("unpriced", None), on_thread & (events.kind == EventKind.OP) & ~marked[events.name]),
    ):
        spans = clip(union(events.start_ns[mask], events.end_ns[mask]), steps.start, steps.stop)
        new = subtract(spans, taken)
        lines[key] = new.length / steps.count
        taken = union(np.concatenate([taken.start, spans.start]), np.concatenate([taken.stop, spans.stop]))
    rest = complement(taken, steps.start, steps.stop)
    silent = _silent(rest)
    lines["overhead", PYTHON_CAUSE] = (rest.length - silent) / steps.count
    lines["overhead", UNEXPLAINED] = silent / steps.count
    return lines


def _busiest(events: EventTable) -> int:
    rows = events.of(EventKind.OP)
    rows = rows if len(rows) else np.arange(len(events))
    return int(np.bincount(events.thread[rows], weights=events.duration_ns[rows]).argmax()) if len(rows) else 0


def _silent(rest: Spans) -> int:
    """Time in stretches that are too long to be Python between two operations."""
    length = rest.stop - rest.start
    return int(length[length >= UNSEEN_NS].sum())
