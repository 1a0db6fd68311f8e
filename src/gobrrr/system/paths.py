"""How files are named in everything that is shown, saved or passed on: never with anybody's home folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache

HOME = "~"
COMPILED_FOLDER = "torchinductor_user"
"""Replaces the name of the folder of compiled code, which torch names after the user."""

_BEFORE = r"(?<![\w.~-])"  # a path begins here
_NAME = r"[^\\/\s\"'<>:]+"
_OTHERS = rf"{_BEFORE}(?:/home/{_NAME}|/Users/{_NAME}|/root|[A-Za-z]:[\\/]+Users[\\/]+{_NAME})(?=[\\/])"
"""Home folders in the usual places of each system: a trace may come from somebody else's machine."""
_SIGNS = ("/home/", "/root", "Users")
"""Every match of `_OTHERS` contains one of these."""

_COMPILED_SIGN = "torchinductor_"
_COMPILED = re.compile(rf"(?<=[\\/]){_COMPILED_SIGN}{_NAME}(?=[\\/])")
"""The folder of compiled code, and the beginning of its name."""


def short(path: str, folders: Iterable[str]) -> str:
    """`path` relative to the innermost of `folders` that contains it; else with "~" for the home folder.

    A folder that contains the home folder itself is not used: the rest of the path would name the owner.
    """
    above = tuple(os.path.dirname(home) + os.sep for home in _homes(os.path.expanduser("~")))
    ends = (os.path.join(folder, "") for folder in folders if folder)
    fit = [end for end in ends if path.startswith(end) and not any(home.startswith(end) for home in above)]
    return path[len(max(fit, key=len)) :] if fit else without_home(path)


def without_home(text: str) -> str:
    """The text with "~" for each home folder in it: this user's, and those in the usual places of each system."""
    homes = _homes(os.path.expanduser("~"))
    if any(sign in text for sign in (*_SIGNS, *_spelled(homes))):  # a thousand times faster than the pattern
        text = _pattern(homes).sub(HOME, text)
    return _COMPILED.sub(COMPILED_FOLDER, text) if _COMPILED_SIGN in text else text


def bytes_without_home(data: bytes) -> bytes:
    """`without_home` for UTF-8 text, such as JSON."""
    return without_home(data.decode("utf-8")).encode("utf-8")


@lru_cache(maxsize=4)
def _homes(home: str) -> tuple[str, ...]:
    """The home folder, and its real path where that differs; none where there is no home folder, or it is the root."""
    paths = dict.fromkeys(path.rstrip("/\\") for path in (home, os.path.realpath(home)))
    return tuple(path for path in paths if path and os.path.isabs(home))


def _spelled(homes: tuple[str, ...]) -> tuple[str, ...]:
    """Each home folder as it is, and as JSON escapes it."""
    return tuple(dict.fromkeys(form for home in homes for form in (home, home.replace("\\", "\\\\"))))


@lru_cache(maxsize=4)
def _pattern(homes: tuple[str, ...]) -> re.Pattern[str]:
    own = [rf"{_BEFORE}{re.escape(home)}(?![\w-]|\.\w)" for home in sorted(_spelled(homes), key=len, reverse=True)]
    return re.compile("|".join([*own, _OTHERS]))
