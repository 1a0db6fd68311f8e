"""Which host event encloses which: parents by containment in time on one thread."""

from __future__ import annotations

import numpy as np

from gobrrr.model.events import ABSENT, I8, EventKind, EventTable, Mask

HOST_KINDS = (EventKind.OP, EventKind.ANNOTATION, EventKind.PYTHON, EventKind.RUNTIME)
"""The kinds of events on the host's threads."""
STEP_MARK = "ProfilerStep"
"""Names of step annotations begin with this."""
NESTING_SLACK_NS = 1_000
"""A child may end this much after its parent: dialects in whole microseconds round each time on its own."""


def parents(events: EventTable, *kinds: EventKind) -> I8:
    """For each row, the row of the innermost event of `kinds` that encloses it on its thread, or -1.

    Rows of other kinds get -1 and are no parents. Step annotations are not parents either: a step may begin within a
    call that ends within the step. Pointer jumping over all rows at once: only closed events lie between a guess and
    the row, so a guess that has ended before the row ends can be replaced by its own guess.
    """
    result = np.full(len(events), ABSENT, dtype=np.int64)
    rows = events.of(*(kinds or HOST_KINDS))
    marks = np.array([name.startswith(STEP_MARK) for name in events.names] or [False], dtype=bool)
    rows = rows[~(marks[events.name[rows]] & (events.kind[rows] == EventKind.ANNOTATION))]
    if not len(rows):
        return result
    start, stop = events.start_ns[rows], events.end_ns[rows]
    order = np.lexsort((events.kind[rows] == EventKind.RUNTIME, start - stop, start, events.thread[rows]))
    rows, start, stop = rows[order], start[order], stop[order]
    thread = events.thread[rows]
    guess = np.arange(-1, len(rows) - 1)
    guess[np.concatenate([[True], thread[1:] != thread[:-1]])] = ABSENT
    limit = np.where(stop > start, stop - NESTING_SLACK_NS, stop)
    limit = np.maximum(limit, start)
    open_rows = np.flatnonzero(guess >= 0)
    while len(open_rows):
        wrong = open_rows[_closed(stop, start, limit, guess, open_rows)]
        guess[wrong] = guess[guess[wrong]]
        open_rows = wrong[guess[wrong] >= 0]
    enclosed = guess >= 0
    result[rows[enclosed]] = rows[guess[enclosed]]
    return result


def _closed(stop: I8, start: I8, limit: I8, guess: I8, rows: I8) -> Mask:
    """Whether the guessed parent has ended before the row: it ends before the row's start, or well before its end."""
    end = stop[guess[rows]]
    closed: Mask = (end < limit[rows]) | (end <= start[rows]) & (stop[rows] > start[rows])
    return closed


def outermost(parent: I8, mask: Mask) -> I8:
    """For each row, its outermost ancestor (itself included) within `mask`, or -1."""
    # `current`: the outermost among a row and its next 1, 3, 7, ... ancestors; `jump`: the next ancestor after those
    current = np.where(mask, np.arange(len(parent)), ABSENT)
    jump = parent.copy()
    rows = np.flatnonzero(jump >= 0)
    while len(rows):
        farther, beyond = current[jump[rows]], jump[jump[rows]]
        current[rows] = np.where(farther >= 0, farther, current[rows])
        jump[rows] = beyond
        rows = rows[beyond >= 0]
    return current


def depths(parent: I8) -> I8:
    """How many ancestors each row has."""
    depth = (parent >= 0).astype(np.int64)
    jump = parent.copy()  # the ancestor that is `depth` steps away
    rows = np.flatnonzero(jump >= 0)
    while len(rows):
        depth[rows] += depth[jump[rows]]
        jump[rows] = jump[jump[rows]]
        rows = rows[jump[rows] >= 0]
    return depth


def sums_below(parent: I8, values: I8) -> I8:
    """For each row, the sum of `values` over all its descendants."""
    total = values.copy()
    inner_rows = np.flatnonzero(parent >= 0)
    depth = depths(parent)[inner_rows]
    inner_rows = inner_rows[np.argsort(-depth, kind="stable")]
    bounds = np.flatnonzero(np.diff(np.sort(-depth), prepend=1))
    for level in np.split(inner_rows, bounds[1:]):
        np.add.at(total, parent[level], total[level])
    return total - values


def ancestors(parent: I8, row: int) -> list[int]:
    """`row`'s ancestors, innermost first."""
    rows = []
    row = int(parent[row])
    while row >= 0:
        rows.append(row)
        row = int(parent[row])
    return rows
