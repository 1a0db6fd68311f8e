"""Walks the tree of places: what lies within a place, and which source line it is on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gobrrr.model.places import PlaceNode

SOURCE_PATTERN = re.compile(r"(?P<file>[^<>()]+)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
"""The source of a place: "path/file.py(28): train"."""


def at_line(source: str | None) -> str:
    """A source as it is shown: "file.py:28"; "" if there is none."""
    match = SOURCE_PATTERN.fullmatch(source or "")
    if not match:
        return ""
    file = match["file"].replace("\\", "/").rpartition("/")[2]
    return f"{file}:{match['line']}"


class PlaceTree:
    """The places of a diagnosis as a tree."""

    def __init__(self, nodes: Sequence[PlaceNode]) -> None:
        self.nodes = nodes
        self._below: dict[int, list[PlaceNode]] = defaultdict(list)
        for node in nodes:
            if node.parent is not None:
                self._below[node.parent].append(node)

    def below(self, node: PlaceNode) -> list[PlaceNode]:
        """The places directly within a place."""
        return self._below[node.id]

    def path(self, node: PlaceNode) -> Iterator[PlaceNode]:
        """The place, then those around it, the program last."""
        yield node
        while node.parent is not None:
            node = self.nodes[node.parent]
            yield node

    def inside(self, node: PlaceNode) -> Iterator[PlaceNode]:
        """The place and all places within it."""
        waiting = [node]
        while waiting:
            at = waiting.pop()
            yield at
            waiting += self._below[at.id]

    def outermost(self, node: PlaceNode, kind: str) -> Iterator[PlaceNode]:
        """The outermost places of a kind within a place."""
        waiting = list(self._below[node.id])
        while waiting:
            at = waiting.pop()
            if at.kind == kind:
                yield at
            else:
                waiting += self._below[at.id]

    def share(self, ns: float) -> float:
        """A time as a share of the step."""
        return ns / self.nodes[0].step_ns if self.nodes[0].step_ns else 0.0

    def has_lines(self, node: PlaceNode) -> bool:
        """Whether known source lines directly within a place have most of its time."""
        return 2 * sum(place.step_ns for place in self.below(node) if place.kind == "line") > node.step_ns

    def of_line(self, node: PlaceNode) -> PlaceNode | None:
        """The source line that a place is on; None if only the function around it is known."""
        for place in self.path(node):
            if place.kind == "line":
                return place
            if place.kind in ("function", "program"):
                return None
        return None

    def lifted(self, node: PlaceNode, same: float) -> PlaceNode:
        """The line that the place is on if the place has at least the share `same` of it, else the place."""
        line = self.of_line(node)
        return line if line is not None and node.step_ns >= same * line.step_ns else node

    def told(self, node: PlaceNode, same: float) -> PlaceNode:
        """The place to show for one: while a function, a module or an annotation has one place within it with at least
        the share `same` of its time, that place instead."""
        while node.kind in ("function", "module", "annotation"):
            inner = (place for place in self.below(node) if place.kind != "kernel")
            large = next((place for place in inner if place.step_ns >= same * node.step_ns), None)
            if large is None:
                break
            node = large
        return self.lifted(node, same)
