"""Python frames of a live run: the profiler's names, marked where a name alone does not say whose code it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from gobrrr.model.events import EventTable
from gobrrr.model.frame_names import file_of, marked
from gobrrr.observe.installed import Owner, owner


def current_folder() -> str:
    """The current folder, ending in a separator; "" where it was deleted."""
    try:
        return os.path.join(os.getcwd(), "")
    except OSError:
        return ""


def with_owners(events: EventTable, roots: Sequence[str] | None = None) -> EventTable:
    """The same events, with the frames of the user's code and of libraries marked in their names."""
    folders = [folder or current_folder() for folder in (sys.path if roots is None else roots)]
    known: dict[str, Owner | None] = {}
    return replace(events, names=tuple(_owned(name, folders, known) for name in events.names))


def _owned(name: str, folders: Sequence[str], known: dict[str, Owner | None]) -> str:
    path = file_of(name)
    if path is None:
        return name
    if path not in known:
        known[path] = _owner(path, folders)
    whose = known[path]
    return name if whose is None else marked(name, users=whose is Owner.USER)


def _owner(path: str, folders: Sequence[str]) -> Owner | None:
    """Whose a file is; None where it is not found. The profiler leaves out its folder on the search path."""
    if os.path.isabs(path):
        return owner(path)
    found = next((full for folder in folders if os.path.isfile(full := os.path.join(folder, path))), None)
    return owner(found) if found is not None else None
