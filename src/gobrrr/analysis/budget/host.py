"""The budget of a trace without device work: what the busiest host thread did."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.budget.idle import COMPILING, INPUT, PYTHON, UNEXPLAINED, UNSEEN_NS
from gobrrr.analysis.events.calls import Call, classify
from gobrrr.analysis.events.intervals import EMPTY, Spans, clip, complement, subtract, union
from gobrrr.analysis.events.steps import Steps
from gobrrr.model.events import EventTable, Kind


def host_budget(events: EventTable, steps: Steps) -> dict[tuple[str, str | None], float]:
    """(line, cause) -> ns of one step. Operations of the busiest thread are work without a floor; the rest is overhead.

    A CPU's operations run inside their dispatch, so that a trace can't tell the two apart.
    """
    thread = _busiest(events)
    here = events.thread == thread
    call = classify(events.names)[events.name]
    lines: dict[tuple[str, str | None], float] = {}
    taken = EMPTY
    for key, mask in (
        (("overhead", INPUT), here & (call == Call.INPUT)),
        (("overhead", COMPILING), here & (call == Call.COMPILE)),
        (("unpriced", None), here & (events.kind == Kind.OP) & ~_steps(events)),
    ):
        spans = clip(union(events.start_ns[mask], events.end_ns[mask]), steps.start, steps.stop)
        fresh = subtract(spans, taken)
        lines[key] = fresh.length / steps.count
        taken = union(np.concatenate([taken.start, spans.start]), np.concatenate([taken.stop, spans.stop]))
    rest = complement(taken, steps.start, steps.stop)
    silent = _silent(rest)
    lines["overhead", PYTHON] = (rest.length - silent) / steps.count
    lines["overhead", UNEXPLAINED] = silent / steps.count
    return lines


def _steps(events: EventTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    marks = np.array([name.startswith("ProfilerStep") for name in events.names], dtype=bool)
    return marks[events.name]


def _busiest(events: EventTable) -> int:
    rows = events.of(Kind.OP)
    rows = rows if len(rows) else np.arange(len(events))
    return int(np.bincount(events.thread[rows], weights=events.duration_ns[rows]).argmax()) if len(rows) else 0


def _silent(rest: Spans) -> int:
    """Stretches too long to be Python between two operations."""
    long = (rest.stop - rest.start) >= UNSEEN_NS
    return int((rest.stop - rest.start)[long].sum())
