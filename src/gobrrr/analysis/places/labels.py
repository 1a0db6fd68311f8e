"""Which host events are places of the program, by their names: modules, functions, calls, operations, annotations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.findings.origins import AUTOGRAD_NODE
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.frame_names import as_written
from gobrrr.model.tree import STEP_MARK

MODULE_FRAME = "nn.Module: "
"""The frame of a module's call begins with this."""
_ADDRESS = re.compile(r" of type object at 0x[0-9a-f]+| at 0x[0-9a-f]+")
_NUMBERED = re.compile(r"_\d+$")
_COUNTED = re.compile(r"[ #_:/]*\d+$")
"""What a place's name leaves out: addresses, the profiler's number of a module, and the number of an annotation."""
_SILENT = (STEP_MARK, "gobrrr")
"""Annotations that are no place: the profiler's steps, which old traces have as operations, and this package's."""

_MACHINERY = (
    "torch/utils/_contextlib.py(",
    "torch/autograd/profiler.py(",
    "torch/profiler/",
    "torch/_compile.py(",
    "torch/_dynamo/eval_frame.py(",
    "<built-in method __enter__",
    "<built-in method __exit__",
)
"""Library frames that only pass a call on: the called function is the place."""

_MODULES_CALL = re.compile(r"torch/nn/modules/module\.py\(\d+\): (?:_call_impl|inner|__\w+__)$")
"""The same within the call of a module. Its other methods, such as `parameters()` or `state_dict()`, are places."""

_OURS = "gobrrr/"
"""This package's frames around the program begin with this."""


class PlaceSort(IntEnum):
    """What a host event is in the tree of places. The numbers are indices into `PLACE_KINDS`."""

    NONE = 0
    MODULE = 1
    FUNCTION = 2
    LINE = 3
    CALL = 4  # a library's or built-in function that the program calls itself
    OP = 5
    ANNOTATION = 6
    DRIVER = 7  # a driver call that waits, allocates or loads
    KERNEL = 8
    INPUT = 9


PLACE_KINDS = ("program", "module", "function", "line", "call", "op", "annotation", "driver", "kernel", "input")
"""The name of each `PlaceSort` in the diagnosis; `Sort.NONE` is the root."""

KEPT_CALLS = (HostCall.WAIT, HostCall.ALLOCATE, HostCall.COMPILE)
"""Driver calls that are places of their own. A launch or a copy is part of its operation."""


def sorts(events: EventTable, parent: NDArray[np.int64], own: Callable[[str], bool]) -> NDArray[np.uint8]:
    """The `PlaceSort` of each row. `own`: whether a Python frame's name is of the program's own code."""
    names = events.names
    python = np.array([_frame(name, own) for name in names] or [0], dtype=np.uint8)
    call = classify(names)
    driver = np.isin(call, KEPT_CALLS)
    silent = np.array([name.startswith(_SILENT) for name in names] or [False], dtype=bool)
    node = np.array([name.startswith(AUTOGRAD_NODE) for name in names] or [False], dtype=bool)
    name, kind = events.name, events.kind
    result = np.zeros(len(events), dtype=np.uint8)
    frame = kind == EventKind.PYTHON
    result[frame] = python[name[frame]]
    # of a library's frames only those that the program calls itself are places
    called = np.flatnonzero(result == PlaceSort.CALL)
    around = calling(events, parent)[called]
    result[called[(around < 0) | (result[np.maximum(around, 0)] != PlaceSort.FUNCTION)]] = PlaceSort.NONE
    result[(kind == EventKind.OP) & ~node[name] & ~silent[name]] = PlaceSort.OP
    result[(kind == EventKind.ANNOTATION) & ~silent[name]] = PlaceSort.ANNOTATION
    result[(kind == EventKind.RUNTIME) & driver[name]] = PlaceSort.DRIVER
    return result


def calling(events: EventTable, parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nearest event around each row that is no annotation, because annotations call nothing; -1 for none."""
    around = parent.copy()
    marks = events.kind == EventKind.ANNOTATION
    while len(rows := np.flatnonzero((around >= 0) & marks[np.maximum(around, 0)])):
        around[rows] = parent[around[rows]]
    return around


def _frame(name: str, own: Callable[[str], bool]) -> int:
    if name.startswith(MODULE_FRAME):
        return PlaceSort.MODULE
    if own(name):
        return PlaceSort.FUNCTION
    passes = name.startswith(_OURS) or any(part in name for part in _MACHINERY) or _MODULES_CALL.search(name)
    return PlaceSort.NONE if passes else PlaceSort.CALL


def shown(name: str, sort: int) -> str:
    """The name of a place: without addresses, without the profiler's numbers of modules (the layers that one line calls
    are one place) and of steps, and with the compiler's renaming of functions undone."""
    if sort == PlaceSort.MODULE:
        return _NUMBERED.sub("", name.removeprefix(MODULE_FRAME))
    if sort == PlaceSort.ANNOTATION:
        return _COUNTED.sub("", name) or name
    if sort == PlaceSort.CALL:
        return _ADDRESS.sub("", name)
    if sort == PlaceSort.FUNCTION:
        return as_written(name)
    return name


def same_labels(
    names: Sequence[str], sort: NDArray[np.uint8], name: NDArray[np.int32]
) -> tuple[NDArray[np.int64], list[tuple[int, str]]]:
    """(for each row an index into the labels or -1 for no place, the labels as (sort, text))."""
    used = np.flatnonzero(sort)
    key = sort[used].astype(np.int64) * max(len(names), 1) + name[used]
    unique, inverse = np.unique(key, return_inverse=True)
    index: dict[tuple[int, str], int] = {}
    place = np.empty(len(unique), dtype=np.int64)
    for at, pair in enumerate(unique.tolist()):
        kind, which = divmod(pair, max(len(names), 1))
        place[at] = index.setdefault((kind, shown(names[which], kind)), len(index))
    result = np.full(len(sort), -1, dtype=np.int64)
    result[used] = place[np.asarray(inverse).reshape(-1)]
    return result, list(index)
