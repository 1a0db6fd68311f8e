"""The places of a step as a flame graph's file: what https://www.speedscope.app opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any

import msgspec

from gobrrr.errors import UsageError
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.places import PlaceNode
from gobrrr.report.doing import bare
from gobrrr.report.text import sanitise
from gobrrr.report.tree import SOURCE, Places
from gobrrr.system import files
from gobrrr.system.paths import bytes_without_home

SCHEMA = "https://www.speedscope.app/file-format-schema.json"

Frame = tuple[str, str | None, int | None]
"""What a frame shows: its name, the file, the line."""


def save(diagnosis: Diagnosis, path: str | PathLike[str]) -> None:
    """Write the places of the diagnosis. Raises UsageError where it has none, or the file can't be written."""
    files.check_writable(path)
    files.write(path, to_speedscope(diagnosis, path))


def to_speedscope(diagnosis: Diagnosis, path: str | PathLike[str] = "") -> bytes:
    """The file: a profile of the step's time and, where a device worked, one of the device's; weights are ns of a step.

    Raises UsageError, which names the path, where the diagnosis has no places.
    """
    if not diagnosis.places:
        raise UsageError(f"{path}: not written: this diagnosis does not say in which places of the program the time is")
    tree, frames = Places(diagnosis.places), dict[Frame, int]()
    stacks = list(_stacks(tree, frames))
    profiles = [_profile("the step", stacks, lambda one: one.own_ns)]
    if diagnosis.places[0].device_ns:
        profiles.append(_profile("the device", stacks, lambda one: _own_device(tree, one)))
    shown = [{"name": name, "file": file, "line": line} for name, file, line in frames]
    document = {
        "$schema": SCHEMA,
        "exporter": f"gobrrr {diagnosis.version}".strip(),
        "name": sanitise(diagnosis.target),
        "activeProfileIndex": 0,
        "shared": {"frames": [{key: value for key, value in one.items() if value is not None} for one in shown]},
        "profiles": profiles,
    }
    return bytes_without_home(msgspec.json.encode(document))


def _stacks(tree: Places, frames: dict[Frame, int]) -> Iterator[tuple[PlaceNode, list[int]]]:
    """Each place with the frames from the program to it, what is within a place right behind it."""
    waiting: list[tuple[PlaceNode, list[int]]] = [(tree.nodes[0], [])]
    while waiting:
        one, around = waiting.pop()
        stack = [*around, frames.setdefault(_frame(one), len(frames))]
        yield one, stack
        waiting += [(inner, stack) for inner in reversed(tree.below(one))]


def _frame(one: PlaceNode) -> Frame:
    """Only a function and a line stand in a file: an operation is the same one wherever it is called."""
    source = SOURCE.fullmatch(one.source or "") if one.kind in ("function", "line") else None
    if source is None:
        return (bare(one) if one.kind in ("call", "module") else sanitise(one.name), None, None)
    of_function = one.kind == "function" or one.name == one.source
    name = sanitise(source["function"]) if of_function else bare(one)
    return (name, sanitise(source["file"]), int(source["line"]))


def _own_device(tree: Places, one: PlaceNode) -> int:
    return one.device_ns - sum(inner.device_ns for inner in tree.below(one))


def _profile(name: str, stacks: list[tuple[PlaceNode, list[int]]], own: Callable[[PlaceNode], int]) -> dict[str, Any]:
    weighed = [(stack, ns) for one, stack in stacks if (ns := own(one)) > 0]
    return {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(ns for _, ns in weighed),
        "samples": [stack for stack, _ in weighed],
        "weights": [ns for _, ns in weighed],
    }
