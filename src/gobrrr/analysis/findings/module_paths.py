"""The nn.Modules around a host event, outermost first, each under the name that every answer gives it.

Where a step was looked at as it was dispatched, a module is called as the program would write it: "GPT.blocks.3". A
trace knows only the profiler's names: "Block_3".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gobrrr.model.events import ABSENT, I8, EventTable, Kind
from gobrrr.model.recording import Site

Path = tuple[str, ...]

_MODULE = "nn.Module: "
_NUMBER = re.compile(r"_\d+$")
"""By which the profiler tells modules of one class apart."""


def prefixes(path: str) -> Path:
    """A module's path and all that it lies in: ("GPT", "GPT.blocks", "GPT.blocks.3")."""
    parts = path.split(".")
    return tuple(".".join(parts[:end]) for end in range(1, len(parts) + 1))


class FramePaths:
    """By the profiler's frames. Each event is looked at once."""

    def __init__(self, events: EventTable, parents: I8, forward: I8) -> None:
        """`parents`: the host event around each row; `forward`: the forward operation that it differentiates, or -1."""
        self._names, self._name, self._parents, self._forward = events.names, events.name, parents, forward
        self._python = events.kind == Kind.PYTHON
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
        for one in reversed(inner):
            if self._python[one] and (text := self._names[int(self._name[one])]).startswith(_MODULE):
                path = (*path, text.removeprefix(_MODULE))
            self._known[one] = path
        return path


class ModulePaths:
    """By the sites of a step that was looked at, and by the frames for what has none.

    An event without a site takes the program's names from those that have a site and lie under the same frames.
    """

    def __init__(self, frames: FramePaths | None, sites: I8, found: tuple[Site, ...], rows: Iterable[int]) -> None:
        """`sites`: of each row, the index into `found` or -1; `rows`: operations that the names are taken from."""
        self._frames, self._sites, self._found = frames, sites, found
        self._spelled: dict[Path, Path] = {}
        for row in rows if frames is not None and found else ():
            self._learn(row)

    def of(self, row: int) -> Path:
        """The modules around an event; none where they are not known."""
        if row < 0:
            return ()
        if site := self._site(row):
            return prefixes(site[-1])
        framed = self._framed(row)
        return self._spelled.get(framed, framed) if framed else ()

    def kind(self, row: int) -> str | None:
        """The class of the innermost module around an event, whatever the answer calls the module; None: not known."""
        if row < 0:
            return None
        site = int(self._sites[row])
        around = self._found[site].modules if site >= 0 else self._framed(row)
        return _NUMBER.sub("", around[-1]) if around else None

    def _learn(self, row: int) -> None:
        if row < 0 or not (site := self._site(row)) or len(framed := self._framed(row)) != len(site):
            return
        for depth, path in enumerate(site, 1):
            self._spelled.setdefault(framed[:depth], prefixes(path))

    def _site(self, row: int) -> Path:
        """The modules of a row's site as the program would write them; none where it has no site."""
        site = int(self._sites[row])
        return self._found[site].paths if site >= 0 else ()

    def _framed(self, row: int) -> Path:
        return self._frames.of(row) if self._frames is not None else ()
