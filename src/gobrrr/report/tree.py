"""The tree of places, to walk in: what lies in what, and which line a place is on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gobrrr.model.places import PlaceNode

SOURCE = re.compile(r"(?P<file>[^<>()]+)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
"""The source of a place: "path/file.py(28): train"."""


def at_line(source: str | None) -> str:
    """A source as a screen shows it: "file.py:28"; "" where it is none."""
    found = SOURCE.fullmatch(source or "")
    if not found:
        return ""
    file = found["file"].replace("\\", "/").rpartition("/")[2]
    return f"{file}:{found['line']}"


class Places:
    """The places of a diagnosis, with what lies below each."""

    def __init__(self, nodes: Sequence[PlaceNode]) -> None:
        self.nodes = nodes
        self._below: dict[int, list[PlaceNode]] = defaultdict(list)
        for node in nodes:
            if node.parent is not None:
                self._below[node.parent].append(node)

    def below(self, node: PlaceNode) -> list[PlaceNode]:
        """The places directly within one."""
        return self._below[node.id]

    def path(self, node: PlaceNode) -> Iterator[PlaceNode]:
        """The place, then those around it, the program last."""
        yield node
        while node.parent is not None:
            node = self.nodes[node.parent]
            yield node

    def inside(self, node: PlaceNode) -> Iterator[PlaceNode]:
        """The place and all within it."""
        waiting = [node]
        while waiting:
            at = waiting.pop()
            yield at
            waiting += self._below[at.id]

    def outermost(self, node: PlaceNode, kind: str) -> Iterator[PlaceNode]:
        """The places of a kind within a place that lie in no other of that kind within it."""
        waiting = list(self._below[node.id])
        while waiting:
            at = waiting.pop()
            if at.kind == kind:
                yield at
            else:
                waiting += self._below[at.id]

    def share(self, ns: float) -> float:
        """The share that a time has of the step."""
        return ns / self.nodes[0].step_ns if self.nodes[0].step_ns else 0.0

    def has_lines(self, node: PlaceNode) -> bool:
        """Whether source lines are known within a place, and hold most of it."""
        return 2 * sum(each.step_ns for each in self.below(node) if each.kind == "line") > node.step_ns

    def of_line(self, node: PlaceNode) -> PlaceNode | None:
        """The source line that a place is on; None where only the function around it is known."""
        for each in self.path(node):
            if each.kind == "line":
                return each
            if each.kind in ("function", "program"):
                return None
        return None

    def lifted(self, node: PlaceNode, same: float) -> PlaceNode:
        """The line that the place is on where it has `same` of it, else the place."""
        line = self.of_line(node)
        return line if line is not None and node.step_ns >= same * line.step_ns else node

    def told(self, node: PlaceNode, same: float) -> PlaceNode:
        """The place that stands for one: a function, a module or an annotation of which one place within has `same` is
        that place."""
        while node.kind in ("function", "module", "annotation"):
            inner = [each for each in self.below(node) if each.step_ns >= same * node.step_ns and each.kind != "kernel"]
            if not inner:
                break
            node = inner[0]
        return self.lifted(node, same)
