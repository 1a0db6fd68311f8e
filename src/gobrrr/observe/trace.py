"""The trace door: a profiler trace, or a folder of ranks, wherever it is -> Profile. Works without torch."""

from __future__ import annotations

import os

from gobrrr.model.profile import Profile
from gobrrr.observe.archive import unpacked
from gobrrr.observe.file import read_file
from gobrrr.observe.folder import files_in, read_folder
from gobrrr.observe.source import Progress


def read_trace(target: str | os.PathLike[str], *, python: bool = False, progress: Progress | None = None) -> Profile:
    """Read a profiler trace.

    `target`: a file (JSON or gzip, told by content), a folder of ranks, a tar or zip archive of them, "-" for standard
    input, or any URL that fsspec opens. `python=True` also reads Python and nn.Module frames, which most traces hold
    in masses. `progress` is called with (bytes read, bytes in all or None) for each file.

    Raises InputError (one line, with what to do) when there is nothing to diagnose. What is damaged, missing or left
    out otherwise stands in the profile's notes.
    """
    name = os.fsdecode(target)
    files = files_in(name)
    if files is not None:
        return read_folder(name, files, python=python, progress=progress)
    with unpacked(name) as folder:
        if folder is not None:
            return read_folder(name, files_in(folder) or [], python=python, progress=progress)
    notes: list[str] = []
    rank = read_file(name, notes, python=python, progress=progress)
    return Profile(target=name, origin="trace", ranks=(rank,), notes=tuple(notes))
