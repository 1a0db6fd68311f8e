"""The places of the program as tracks of a Chrome trace: for each host thread, the places it is in over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gobrrr import units
from gobrrr.model.events import I8, EventTable
from gobrrr.model.places import PlaceNode
from gobrrr.report.doing import bare
from gobrrr.report.text import sanitise
from gobrrr.report.tree import SOURCE_PATTERN

HOLDS_MARK = "holds the step"
"""Marks the place with most of the step's time."""


@dataclass(frozen=True)
class Placed:
    """The places of a diagnosis. `of_event`: for each event the place that it lies in (-1 for device work)."""

    nodes: list[PlaceNode]
    held_by: int | None
    of_event: I8


@dataclass
class _Open:
    """A slice that has begun."""

    place: int
    start: int
    end: int


def slices(events: EventTable, placed: Placed, pid: int) -> Iterator[dict[str, Any]]:
    """The slices of each thread, as entries of a Chrome trace; neighbours in the same place are merged.

    An operation of the backward pass lies where its forward operation does. Calls inside an operation are left out.
    """
    paths = [_path(placed.nodes, node) for node in placed.nodes]
    rows = np.flatnonzero(placed.of_event > 0)
    rows = rows[np.lexsort((events.start_ns[rows] - events.end_ns[rows], events.start_ns[rows]))]
    for thread in np.unique(events.thread[rows]).tolist():
        own = rows[events.thread[rows] == thread]
        columns = (events.start_ns[own], events.end_ns[own], placed.of_event[own])
        for span in _joined(zip(*(column.tolist() for column in columns), strict=True), paths):
            yield _slice(placed, span, pid, thread)


def _path(nodes: list[PlaceNode], node: PlaceNode) -> list[int]:
    """The places from below the program to this one, down to the operation that the program calls."""
    path: list[int] = []
    at: PlaceNode | None = node
    while at is not None and at.parent is not None:
        path.insert(0, at.id)
        at = nodes[at.parent]
    first = next((depth for depth, place in enumerate(path) if nodes[place].kind in ("op", "driver")), len(path))
    return path[: first + 1]


def _joined(entries: Iterator[tuple[int, int, int]], paths: list[list[int]]) -> Iterator[_Open]:
    """The slices of a thread, inner ones first. `entries`: (begin, end, place), by begin."""
    stack: list[_Open] = []
    for start, end, place in entries:
        path = paths[place]
        common = 0
        while common < min(len(path), len(stack)) and stack[common].place == path[common]:
            common += 1
        if common < len(path):
            yield from _closed(stack, common, start)
        for span in stack[:common]:
            span.end = max(span.end, end)
        stack += [_Open(inner, start, end) for inner in path[common:]]
    yield from _closed(stack, 0, None)


def _closed(stack: list[_Open], depth: int, at: int | None) -> Iterator[_Open]:
    """Pop the slices deeper than `depth` from the stack and end them at `at`."""
    while len(stack) > depth:
        span = stack.pop()
        span.end = span.end if at is None else min(span.end, at)
        yield span


def _slice(placed: Placed, span: _Open, pid: int, thread: int) -> dict[str, Any]:
    node = placed.nodes[span.place]
    args: dict[str, Any] = {"place": node.id, "kind": node.kind}
    if node.source:
        args["source"] = sanitise(node.source)
    whole = placed.nodes[0].step_ns
    args["of the step"] = units.percent(node.step_ns / whole) if whole else "0 %"
    held = node.id == placed.held_by
    return {
        "ph": "X",
        "cat": "place",
        "name": f"{named(node)} ({HOLDS_MARK})" if held else named(node),
        "pid": pid,
        "tid": thread,
        "ts": span.start / 1e3,
        "dur": (span.end - span.start) / 1e3,
        "args": args | ({"held_by": True} if held else {}),
    }


def named(node: PlaceNode) -> str:
    """The name of a place on its track; of a line or a function with its file and line."""
    source = SOURCE_PATTERN.fullmatch(node.source or "") if node.kind in ("function", "line") else None
    if source is None:
        return bare(node)
    file = source["file"].replace("\\", "/").rpartition("/")[2]
    what = f"{source['function']}()" if node.kind == "function" or node.name == node.source else node.name
    return sanitise(f"{file}:{source['line']} {what}")
