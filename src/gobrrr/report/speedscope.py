"""The places of a step as a flame graph: a file for https://www.speedscope.app."""

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
from gobrrr.report.tree import SOURCE_PATTERN, PlaceTree
from gobrrr.system import files
from gobrrr.system.paths import bytes_without_home

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
"""The format of the file."""

Frame = tuple[str, str | None, int | None]
"""A frame: its name, file and line."""


def save(diagnosis: Diagnosis, path: str | PathLike[str]) -> None:
    """Write the places of the diagnosis. Raises UsageError if it has none, or the file can't be written."""
    files.check_writable(path)
    files.write(path, to_speedscope(diagnosis, path))


def to_speedscope(diagnosis: Diagnosis, path: str | PathLike[str] = "") -> bytes:
    """The file: a profile of the step's time and, if a device worked, one of the device's time, in ns per step.

    Raises UsageError, which names the path, if the diagnosis has no places.
    """
    if not diagnosis.places:
        raise UsageError(
            f"{path}: not written: this diagnosis does not know in which places of the program the time is spent"
        )
    tree, frames = PlaceTree(diagnosis.places), dict[Frame, int]()
    stacks = list(_stacks(tree, frames))
    profiles = [_profile("the step", stacks, lambda node: node.own_ns)]
    if diagnosis.places[0].device_ns:
        profiles.append(_profile("the device", stacks, lambda node: _own_device(tree, node)))
    shown = [{"name": name, "file": file, "line": line} for name, file, line in frames]
    document = {
        "$schema": SCHEMA,
        "exporter": f"gobrrr {diagnosis.version}".strip(),
        "name": sanitise(diagnosis.target),
        "activeProfileIndex": 0,
        "shared": {"frames": [{key: value for key, value in frame.items() if value is not None} for frame in shown]},
        "profiles": profiles,
    }
    return bytes_without_home(msgspec.json.encode(document))


def _stacks(tree: PlaceTree, frames: dict[Frame, int]) -> Iterator[tuple[PlaceNode, list[int]]]:
    """Each place with the frames from the program down to it, depth first."""
    waiting: list[tuple[PlaceNode, list[int]]] = [(tree.nodes[0], [])]
    while waiting:
        node, around = waiting.pop()
        stack = [*around, frames.setdefault(_frame(node), len(frames))]
        yield node, stack
        waiting += [(inner, stack) for inner in reversed(tree.below(node))]


def _frame(node: PlaceNode) -> Frame:
    """The frame of a place. Only functions and lines have a file: an operation is the same wherever it is called."""
    source = SOURCE_PATTERN.fullmatch(node.source or "") if node.kind in ("function", "line") else None
    if source is None:
        return (bare(node) if node.kind in ("call", "module") else sanitise(node.name), None, None)
    of_function = node.kind == "function" or node.name == node.source
    name = sanitise(source["function"]) if of_function else bare(node)
    return (name, sanitise(source["file"]), int(source["line"]))


def _own_device(tree: PlaceTree, node: PlaceNode) -> int:
    return node.device_ns - sum(inner.device_ns for inner in tree.below(node))


def _profile(name: str, stacks: list[tuple[PlaceNode, list[int]]], own: Callable[[PlaceNode], int]) -> dict[str, Any]:
    weighed = [(stack, ns) for node, stack in stacks if (ns := own(node)) > 0]
    return {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(ns for _, ns in weighed),
        "samples": [stack for stack, _ in weighed],
        "weights": [ns for _, ns in weighed],
    }
