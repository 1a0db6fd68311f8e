"""The source line that calls each host event, where one step was looked at as it ran."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.steps import Steps
from gobrrr.analysis.places.labels import MODULE, Sort, calling
from gobrrr.model.events import ABSENT, I8, EventTable, Kind
from gobrrr.model.recording import CallLine, OwnTime, Recording

_FRAME = re.compile(r"(?P<file>[^<>()]+\.py)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
MODULE_CALL = "_wrapped_call_impl"
"""The function behind the call of any nn.Module, in whose place the profiler names the module."""

_BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>[^ >]+)")


def callers(events: EventTable, parent: I8, sort: NDArray[np.uint8], steps: Steps, seen: Recording) -> dict[int, str]:
    """For rows that the program's own functions call: the line of the call, "path/file.py(28): function".

    The n-th call of a name from a function in one step is the n-th in the step that was looked at. Where their numbers
    differ, the line is known if all of them come from one. A function that was running when the profiler started is
    named by the line that it had come to, not by that of its begin.
    """
    told: dict[tuple[str, str, str, str], list[CallLine]] = defaultdict(list)
    begins: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in seen.lines:
        file, line, function = parts(one.caller)
        told[file, line, function, one.callee].append(one)
        begins[file, function].add(line)
    found: dict[int, str] = {}
    for (file, line, function, callee, _), rows in _called(events, parent, sort, steps).items():
        known = begins[file, function]
        (begin,) = known if len(known) == 1 else (line,)
        lines = told.get((file, begin, function, callee))
        if not lines:
            continue
        if len(lines) == len(rows):
            found.update(zip(rows, (one.source for one in lines), strict=True))
        elif len({one.source for one in lines}) == 1:
            found.update(dict.fromkeys(rows, lines[0].source))
    return found


def own_times(names: Iterable[str], seen: Recording | None) -> dict[str, OwnTime]:
    """Of functions, as the profiler names them, what they do by themselves; nothing where that was not seen."""
    by_place: dict[tuple[str, str], list[OwnTime]] = defaultdict(list)
    for time in seen.own if seen is not None else ():
        by_place[parts(time.caller)[::2]].append(time)
    return {name: told[0] for name in names if len(told := by_place.get(parts(name)[::2], [])) == 1}


def parts(frame: str) -> tuple[str, str, str]:
    """(the file's name without folders, the number, the function) of "path/file.py(12): function"."""
    match = _FRAME.fullmatch(frame)
    return (match["file"].rpartition("/")[2], match["line"], match["function"]) if match else ("", "", frame)


def called_name(name: str) -> str:
    """The bare name of a function, from what the profiler calls its frame."""
    if name.startswith(MODULE):
        return MODULE_CALL
    if match := _BUILT_IN.match(name):
        return match["name"]
    return match["function"] if (match := _FRAME.fullmatch(name)) else name


def _called(
    events: EventTable, parent: I8, sort: NDArray[np.uint8], steps: Steps
) -> dict[tuple[str, str, str, str, int], list[int]]:
    """Rows of frames that are called by the program's own functions, in order, by caller, callee and step."""
    python = np.flatnonzero(events.kind == Kind.PYTHON)
    around = calling(events, parent)
    rows = python[(around[python] >= 0) & (sort[np.maximum(around[python], 0)] == Sort.FUNCTION)]
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
    """The line of each operation that the program calls itself. `above`: the nearest place around each row, but for
    annotations: where that is a function, the line is one of it. An operation that is made of others, and is not
    dispatched itself, is on the line of the first of them.
    """
    sites = _of_the_whole(sort, above, sites)
    rows = np.flatnonzero((sort == Sort.OP) & (sites >= 0))
    around = above[rows]
    outer = rows[(around == ABSENT) | (sort[np.maximum(around, 0)] == Sort.FUNCTION)]
    lines = [one.user for one in seen.sites]
    names = {row: parts(events.name_of(row)) for row in np.unique(above[outer]).tolist() if row >= 0}
    found = {}
    for row, site, function in zip(outer.tolist(), sites[outer].tolist(), above[outer].tolist(), strict=True):
        line = lines[site]
        if line is not None and (function == ABSENT or parts(line)[::2] == names[function][::2]):
            found[row] = line
    return found


def _of_the_whole(sort: NDArray[np.uint8], above: I8, sites: I8) -> I8:
    """The sites, with those of operations that have none but hold some that do: the outermost takes its first one's."""
    inner = np.flatnonzero((sort == Sort.OP) & (sites >= 0))
    top = inner.copy()
    while len(at := np.flatnonzero((above[top] >= 0) & (sort[np.maximum(above[top], 0)] == Sort.OP))):
        top[at] = above[top[at]]
    whole, first = np.unique(top, return_index=True)
    result = sites.copy()
    lacks = sites[whole] < 0
    result[whole[lacks]] = sites[inner[first[lacks]]]
    return result
