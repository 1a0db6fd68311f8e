"""Keeps the recorded steps that do what most of them do: an evaluation between two steps is not the step.

The time without the profiler is that of the median step, without what only some steps do. A step that did more would be
scaled down to it, one that did less scaled up.
"""

from __future__ import annotations

import re

import numpy as np

from gobrrr.model.events import EventKind, EventTable

STEP_ANNOTATION = re.compile(r"ProfilerStep\s*#\s*\d+")
"""The annotation of a step."""

TYPICAL_OPERATIONS_SHARE = 0.25
"""A step did something else where its number of operations differs from the median by more than this share. Chosen."""


def typical_only(events: EventTable, notes: list[str]) -> EventTable:
    """The events without the marks of steps outside the longest run of alike ones; a note counts those left out."""
    named = np.array([STEP_ANNOTATION.match(name) is not None for name in events.names], dtype=bool)
    marks = events.of(EventKind.ANNOTATION, EventKind.OP)
    marks = marks[named[events.name[marks]]] if len(marks) else marks
    ids, first = np.unique(events.name[marks], return_index=True)
    order = np.argsort(events.start_ns[marks[first]], kind="stable")
    ids, rows = ids[order], marks[first][order]
    starts = np.sort(events.start_ns[events.of(EventKind.OP)])
    ops = np.searchsorted(starts, events.end_ns[rows]) - np.searchsorted(starts, events.start_ns[rows])
    if (
        not len(ops)
        or (kept := _longest_run(np.abs(ops - np.median(ops)) <= TYPICAL_OPERATIONS_SHARE * np.median(ops))).all()
    ):
        return events
    notes.append(
        f"{int((~kept).sum())} of {len(kept)} recorded steps are left out: they did more or less than the others, as "
        "where one evaluates or the batch is another"
    )
    left = np.isin(events.name, ids[~kept]) & named[events.name]
    if not len(events.on_device):  # on a CPU no work of a step runs after it: later events would count as its work
        left |= events.start_ns >= int(events.end_ns[rows[kept]].max())
    return events.take(np.flatnonzero(~left))


def _longest_run(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Only the flags of the longest run, the first of several; all True where none is."""
    if not flags.any():
        return np.ones_like(flags)
    runs = np.split(np.arange(len(flags)), np.flatnonzero(np.diff(flags.astype(np.int8))) + 1)
    longest = max((run for run in runs if flags[run[0]]), key=len)
    result = np.zeros_like(flags)
    result[longest] = True
    return result
