"""Whose code a Python frame is, by the name that torch's profiler gives it: "path/file.py(12): function".

The profiler leaves out the folder of the search path that contains a file. So torch's own files begin with "torch/",
and a program's with whatever is below its folder; a folder named torch further up in a path may be anybody's. A live
run looks up where each file is (gobrrr.observe.live.frames) and marks the names that would be misjudged.
"""

from __future__ import annotations

import re
from functools import lru_cache

LIBRARY_PREFIX = "site-packages/"
"""Prefix of a library's frame whose name alone does not show that it is a library's."""

_FOLDER = r"(?:^|[/\\])(?:(?:site|dist)-packages|lib(?:64)?[/\\]python3\.\d+)[/\\]"
"""A folder of installed packages, or of Python's own library."""

FROM_LIBRARY = rf"(?:^|{_FOLDER})"
"""What comes before a library's own path: nothing, where the profiler left its folder out, or that folder."""

COMPILED_FILE = re.compile(r"[/\\][a-z2-7]{2}[/\\]c[a-z2-7]{51}\.py$")
"""Code that torch.compile generated: it names its files by a hash of their content."""

_FRAME = re.compile(r"(?P<path>[^<].*?\.py)\(\d+\): (?P<function>.*)", re.DOTALL)
_LIBRARY = re.compile(_FOLDER)
_OWN = re.compile(r"(torch|gobrrr)[/\\]")
_RESUMED = re.compile(r"(?:^|(?<=: ))torch_dynamo_resume_in_(.+)_at_\d+$")
_EXAMPLE = "gobrrr/lab/example.py"
"""The demonstration's program, which counts as a user's."""


def file_of(name: str) -> str | None:
    """The file in a frame's name; None where there is none ("<built-in ...>", "nn.Module: ...")."""
    match = _FRAME.match(name)
    return match["path"] if match is not None else None


@lru_cache(maxsize=1 << 12)
def is_users(name: str) -> bool:
    """Whether a name is of a frame outside of torch, gobrrr, installed packages and Python's own library."""
    path = file_of(name)
    if path is None:
        return False
    library = _OWN.match(path) or _LIBRARY.search(path) or COMPILED_FILE.search(path)
    return library is None or path.endswith(_EXAMPLE)


def marked(name: str, *, users: bool) -> str:
    """The name of a frame, changed so that `is_users` gives `users` for it."""
    if file_of(name) is None or is_users(name) is users:
        return name
    return (
        "./" + name[max((match.end() for match in _LIBRARY.finditer(name)), default=0) :]
        if users
        else LIBRARY_PREFIX + name
    )


def users_function(name: str) -> str | None:
    """The function of a user's frame; None for every other name."""
    match = _FRAME.match(name) if is_users(name) else None
    return match["function"] if match is not None else None


def as_written(name: str) -> str:
    """The name of a frame or a function as in the program: the compiler renames functions that it resumes after a
    graph break."""
    return _RESUMED.sub(r"\1", name)
