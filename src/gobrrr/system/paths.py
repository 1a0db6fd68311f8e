"""How a file is named in what is shown, saved and passed on: never by the home folder of whoever ran it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache

HOME = "~"
COMPILED = "torchinductor_user"
"""What stands for the folder of compiled code: torch names it after the user."""

_BEFORE = r"(?<![\w.~-])"  # a path begins here
_NAME = r"[^\\/\s\"'<>:]+"
_OTHERS = rf"{_BEFORE}(?:/home/{_NAME}|/Users/{_NAME}|/root|[A-Za-z]:[\\/]+Users[\\/]+{_NAME})(?=[\\/])"
"""Home folders where systems have them: a trace comes from somebody else's machine."""
_SIGNS = ("/home/", "/root", "Users")
"""One of these is in each of them."""

_COMPILED_SIGN = "torchinductor_"
_COMPILED = re.compile(rf"(?<=[\\/]){_COMPILED_SIGN}{_NAME}(?=[\\/])")


def short(path: str, folders: Iterable[str]) -> str:
    """The path below the innermost of the folders that hold it, as an import would find it; else below the home folder.

    A folder that holds the home folder itself is left out: what it leaves would name its owner.
    """
    above = tuple(os.path.dirname(home) + os.sep for home in _homes(os.path.expanduser("~")))
    ends = (os.path.join(folder, "") for folder in folders if folder)
    fit = [end for end in ends if path.startswith(end) and not any(home.startswith(end) for home in above)]
    return path[len(max(fit, key=len)) :] if fit else without_home(path)


def without_home(text: str) -> str:
    """The text with each home folder in it called "~": this user's, and those where systems have them."""
    homes = _homes(os.path.expanduser("~"))
    if any(sign in text for sign in (*_SIGNS, *_spelled(homes))):  # looking for a few words is a thousand times faster
        text = _pattern(homes).sub(HOME, text)
    return _COMPILED.sub(COMPILED, text) if _COMPILED_SIGN in text else text


def bytes_without_home(data: bytes) -> bytes:
    """The same of UTF-8, such as JSON."""
    return without_home(data.decode("utf-8")).encode("utf-8")


@lru_cache(maxsize=4)
def _homes(home: str) -> tuple[str, ...]:
    """A home folder, and its real name where that is another; none where there is none, or it is the root."""
    found = dict.fromkeys(one.rstrip("/\\") for one in (home, os.path.realpath(home)))
    return tuple(one for one in found if one and os.path.isabs(home))


def _spelled(homes: tuple[str, ...]) -> tuple[str, ...]:
    """Each plain, and as it stands in JSON."""
    return tuple(dict.fromkeys(form for home in homes for form in (home, home.replace("\\", "\\\\"))))


@lru_cache(maxsize=4)
def _pattern(homes: tuple[str, ...]) -> re.Pattern[str]:
    mine = [rf"{_BEFORE}{re.escape(one)}(?![\w-]|\.\w)" for one in sorted(_spelled(homes), key=len, reverse=True)]
    return re.compile("|".join([*mine, _OTHERS]))
