"""Whose code a Python frame is, by the name that torch's profiler gives it: "path/file.py(12): function".

The profiler leaves out the folder of the search path that a file lies in. So torch's own files begin with "torch/" and
a program's with whatever is below its folder; a folder called torch further up in a path is anybody's. A live run looks
where each file lies (gobrrr.observe.live.frames) and marks the names that would be taken for what they are not.
"""

from __future__ import annotations

import re
from functools import lru_cache

MARK = "site-packages/"
"""Stands in front of the name of a library's frame that is not known by itself."""

_FOLDER = r"(?:^|[/\\])(?:(?:site|dist)-packages|lib(?:64)?[/\\]python3\.\d+)[/\\]"

FROM_LIBRARY = rf"(?:^|{_FOLDER})"
"""What stands in front of a library's own path: nothing, where the profiler left its folder out, or that folder."""

GENERATED = re.compile(r"[/\\][a-z2-7]{2}[/\\]c[a-z2-7]{51}\.py$")
"""Code that torch.compile has written: its files are called by what is in them."""

_FRAME = re.compile(r"(?P<path>[^<].*?\.py)\(\d+\): (?P<function>.*)", re.DOTALL)
_LIBRARY = re.compile(_FOLDER)
_OWN = re.compile(r"(torch|gobrrr)[/\\]")
_RESUMED = re.compile(r"(?:^|(?<=: ))torch_dynamo_resume_in_(.+)_at_\d+$")
_EXAMPLE = "gobrrr/lab/example.py"
"""The demonstration's program, which stands for a user's."""


def file_of(name: str) -> str | None:
    """The file of a frame's name; None where it names none ("<built-in ...>", "nn.Module: ...")."""
    found = _FRAME.match(name)
    return found["path"] if found is not None else None


@lru_cache(maxsize=1 << 12)
def is_users(name: str) -> bool:
    """Whether a name is of a frame outside torch, gobrrr, installed packages and Python's own library."""
    path = file_of(name)
    if path is None:
        return False
    theirs = _OWN.match(path) or _LIBRARY.search(path) or GENERATED.search(path)
    return theirs is None or path.endswith(_EXAMPLE)


def marked(name: str, *, users: bool) -> str:
    """The name of a frame, changed where it alone would say otherwise than that it is the user's, or a library's."""
    if file_of(name) is None or is_users(name) is users:
        return name
    return "./" + name[max((match.end() for match in _LIBRARY.finditer(name)), default=0) :] if users else MARK + name


def users_function(name: str) -> str | None:
    """The function of a user's frame; None of everything else."""
    found = _FRAME.match(name) if is_users(name) else None
    return found["function"] if found is not None else None


def as_written(name: str) -> str:
    """The name of a frame or a function as the program has it: the compiler renames what it resumes after a break."""
    return _RESUMED.sub(r"\1", name)
