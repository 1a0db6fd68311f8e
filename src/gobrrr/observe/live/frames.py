"""Python frames as the profiler names them, with whose code they are: it leaves out the search path's folders."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from gobrrr.model.events import EventTable

_FRAME = re.compile(r"(?P<path>[^<>()]+\.py)\(\d+\): ")
PACKAGES = "site-packages/"
"""What stands in front of a frame of an installed package or of Python's own library."""


def current_folder() -> str:
    """The current folder with a separator at its end; "" where it was removed meanwhile."""
    try:
        return os.path.join(os.getcwd(), "")
    except OSError:
        return ""


def with_owners(events: EventTable, roots: Sequence[str] | None = None) -> EventTable:
    """The same events, the frames of installed packages and of Python's own library marked as such by `PACKAGES`."""
    folders = [one or current_folder() for one in (sys.path if roots is None else roots)]
    known: dict[str, bool] = {}
    return replace(events, names=tuple(_owned(name, folders, known) for name in events.names))


def _owned(name: str, folders: Sequence[str], known: dict[str, bool]) -> str:
    match = _FRAME.match(name)
    if match is None:
        return name
    path = match["path"]
    if path not in known:
        known[path] = _installed(path, folders)
    return f"{PACKAGES}{name}" if known[path] else name


def _installed(path: str, folders: Sequence[str]) -> bool:
    """Whether the first folder of the search path that holds the file is a package folder or Python's own."""
    if os.path.isabs(path):
        return _foreign(path)
    home = next((folder for folder in folders if os.path.isfile(os.path.join(folder, path))), None)
    return home is not None and _foreign(os.path.join(home, ""))


def _foreign(path: str) -> bool:
    own = f"{os.sep}lib{os.sep}python{sys.version_info[0]}"
    prefixes = tuple({sys.base_prefix + own, sys.prefix + own})
    packages = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", f"{os.sep}torchinductor_")
    return any(one in path for one in packages) or path.startswith(prefixes)
