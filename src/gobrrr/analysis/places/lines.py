"""The source line that calls each host event, where a live run observed one step."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.places.labels import MODULE_FRAME, PlaceSort, calling
from gobrrr.model.events import ABSENT, I8, EventKind, EventTable
from gobrrr.model.recording import CallLine, OwnTime, Recording

_FRAME = re.compile(r"(?P<file>[^<>()]+\.py)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
MODULE_CALL = "_wrapped_call_impl"
"""The function that the call of any nn.Module runs; the profiler names the module instead."""

_BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>[^ >]+)")
"""The name of a built-in function in its frame's name."""


def callers(
    events: EventTable, parent: I8, sort: NDArray[np.uint8], steps: StepWindow, seen: Recording
) -> dict[int, str]:
    """For rows that the program's own functions call: the line of the call, "path/file.py(28): function".

    The n-th call of a name from a function in a step is taken to be the n-th in the observed step. Where the numbers of
    calls differ, the line is known only if all observed calls are on one line. The profiler names a function that was
    already running when it started by its current line, not by its first.
    """
    seen_lines: dict[tuple[str, str, str, str], list[CallLine]] = defaultdict(list)
    begins: dict[tuple[str, str], set[str]] = defaultdict(set)
    for call in seen.lines:
        file, line, function = parts(call.caller)
        seen_lines[file, line, function, call.callee].append(call)
        begins[file, function].add(line)
    sources: dict[int, str] = {}
    for (file, line, function, callee, _), rows in _called(events, parent, sort, steps).items():
        begun = begins[file, function]
        (begin,) = begun if len(begun) == 1 else (line,)
        lines = seen_lines.get((file, begin, function, callee))
        if not lines:
            continue
        if len(lines) == len(rows):
            sources.update(zip(rows, (call.source for call in lines), strict=True))
        elif len({call.source for call in lines}) == 1:
            sources.update(dict.fromkeys(rows, lines[0].source))
    return sources


def own_times(names: Iterable[str], seen: Recording | None) -> dict[str, OwnTime]:
    """The own time of functions, by their names in the profile; empty where it was not observed."""
    by_place: dict[tuple[str, str], list[OwnTime]] = defaultdict(list)
    for time in seen.own if seen is not None else ():
        by_place[parts(time.caller)[::2]].append(time)
    return {name: times[0] for name in names if len(times := by_place.get(parts(name)[::2], [])) == 1}


def parts(frame: str) -> tuple[str, str, str]:
    """(the file's name without folders, the number, the function) of "path/file.py(12): function"."""
    match = _FRAME.fullmatch(frame)
    return (match["file"].rpartition("/")[2], match["line"], match["function"]) if match else ("", "", frame)


def called_name(name: str) -> str:
    """The bare name of a function, from its frame's name in the profile."""
    if name.startswith(MODULE_FRAME):
        return MODULE_CALL
    if match := _BUILT_IN.match(name):
        return match["name"]
    return match["function"] if (match := _FRAME.fullmatch(name)) else name


def _called(
    events: EventTable, parent: I8, sort: NDArray[np.uint8], steps: StepWindow
) -> dict[tuple[str, str, str, str, int], list[int]]:
    """Rows of frames that the program's own functions call, in order, by caller, callee and step."""
    python = np.flatnonzero(events.kind == EventKind.PYTHON)
    around = calling(events, parent)
    rows = python[(around[python] >= 0) & (sort[np.maximum(around[python], 0)] == PlaceSort.FUNCTION)]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    begins = np.array(steps.begins or (steps.start,), dtype=np.int64)
    step = np.searchsorted(begins, events.start_ns[rows], side="right") - 1
    callers_ = {name: parts(events.names[name]) for name in np.unique(events.name[around[rows]]).tolist()}
    callees = {name: called_name(events.names[name]) for name in np.unique(events.name[rows]).tolist()}
    result: dict[tuple[str, str, str, str, int], list[int]] = defaultdict(list)
    for row, caller, callee, at in zip(
        rows.tolist(), events.name[around[rows]].tolist(), events.name[rows].tolist(), step.tolist(), strict=True
    ):
        result[(*callers_[caller], callees[callee], at)].append(row)
    return result


def of_operations(events: EventTable, sort: NDArray[np.uint8], above: I8, sites: I8, seen: Recording) -> dict[int, str]:
    """The line of each operation that the program calls itself. `above`: the nearest place around each row, annotations
    aside; where that is a function, the line is one of the function's. A composite operation, which is not dispatched
    itself, has the line of its first part.
    """
    sites = _of_the_whole(sort, above, sites)
    rows = np.flatnonzero((sort == PlaceSort.OP) & (sites >= 0))
    around = above[rows]
    outer = rows[(around == ABSENT) | (sort[np.maximum(around, 0)] == PlaceSort.FUNCTION)]
    lines = [place.user for place in seen.sites]
    names = {row: parts(events.name_of(row)) for row in np.unique(above[outer]).tolist() if row >= 0}
    sources = {}
    for row, site, function in zip(outer.tolist(), sites[outer].tolist(), above[outer].tolist(), strict=True):
        line = lines[site]
        if line is not None and (function == ABSENT or parts(line)[::2] == names[function][::2]):
            sources[row] = line
    return sources


def _of_the_whole(sort: NDArray[np.uint8], above: I8, sites: I8) -> I8:
    """The sites; an outermost operation without a site has that of the first operation within it."""
    inner = np.flatnonzero((sort == PlaceSort.OP) & (sites >= 0))
    top = inner.copy()
    while len(at := np.flatnonzero((above[top] >= 0) & (sort[np.maximum(above[top], 0)] == PlaceSort.OP))):
        top[at] = above[top[at]]
    whole, first = np.unique(top, return_index=True)
    result = sites.copy()
    lacks = sites[whole] < 0
    result[whole[lacks]] = sites[inner[first[lacks]]]
    return result
