"""The nn.Modules around a host event, outermost first, under the names that all answers use.

Where a step's operations were observed as they were dispatched, a module has its path in the program: "GPT.blocks.3".
In a trace it has the profiler's name: "Block_3".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gobrrr.model.events import ABSENT, I8, EventKind, EventTable
from gobrrr.model.recording import Site

Path = tuple[str, ...]

_MODULE = "nn.Module: "
_NUMBER = re.compile(r"_\d+$")
"""What the profiler appends to tell modules of one class apart."""


def prefixes(path: str) -> Path:
    """A module's path and all that it lies in: ("GPT", "GPT.blocks", "GPT.blocks.3")."""
    parts = path.split(".")
    return tuple(".".join(parts[:end]) for end in range(1, len(parts) + 1))


class FramePaths:
    """Modules by the profiler's Python frames. Each event is visited once."""

    def __init__(self, events: EventTable, parents: I8, forward: I8) -> None:
        """`parents`: the host event around each row; `forward`: the forward operation that it differentiates, or -1."""
        self._names, self._name, self._parents, self._forward = events.names, events.name, parents, forward
        self._python = events.kind == EventKind.PYTHON
        self._known: dict[int, Path] = {ABSENT: ()}

    def of(self, row: int) -> Path:
        """The modules around an event; for one of the backward pass, around the forward operation."""
        forward = int(self._forward[row])
        row = int(self._parents[forward if forward >= 0 else row])
        inner = []
        while row not in self._known:
            inner.append(row)
            row = int(self._parents[row])
        path = self._known[row]
        for event in reversed(inner):
            if self._python[event] and (text := self._names[int(self._name[event])]).startswith(_MODULE):
                path = (*path, text.removeprefix(_MODULE))
            self._known[event] = path
        return path


class ModulePaths:
    """Modules by the sites of an observed step, and by Python frames for events without a site.

    An event without a site takes the program's names from an event with a site under the same frames.
    """

    def __init__(self, frames: FramePaths | None, site_of: I8, sites: tuple[Site, ...], rows: Iterable[int]) -> None:
        """`site_of`: for each row, the index into `sites` or -1; `rows`: operations whose sites give the names."""
        self._frames, self._site_of, self._sites = frames, site_of, sites
        self._spelled: dict[Path, Path] = {}
        for row in rows if frames is not None and sites else ():
            self._learn(row)

    def of(self, row: int) -> Path:
        """The modules around an event; empty where they are not known."""
        if row < 0:
            return ()
        if site := self._site(row):
            return prefixes(site[-1])
        framed = self._framed(row)
        return self._spelled.get(framed, framed) if framed else ()

    def kind(self, row: int) -> str | None:
        """The class of the innermost module around an event; None where it is not known."""
        if row < 0:
            return None
        site = int(self._site_of[row])
        around = self._sites[site].modules if site >= 0 else self._framed(row)
        return _NUMBER.sub("", around[-1]) if around else None

    def _learn(self, row: int) -> None:
        if row < 0 or not (site := self._site(row)) or len(framed := self._framed(row)) != len(site):
            return
        for depth, path in enumerate(site, 1):
            self._spelled.setdefault(framed[:depth], prefixes(path))

    def _site(self, row: int) -> Path:
        """The modules of a row's site by their paths in the program; empty where it has no site."""
        site = int(self._site_of[row])
        return self._sites[site].paths if site >= 0 else ()

    def _framed(self, row: int) -> Path:
        return self._frames.of(row) if self._frames is not None else ()
