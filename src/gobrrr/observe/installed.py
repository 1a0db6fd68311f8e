"""Whose code a source file is, by where it lies in this interpreter's installation.

A folder's name alone says nothing: a program may lie below a folder called torch, gobrrr or site-packages.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from pathlib import Path

from gobrrr.model.frame_names import COMPILED_FILE

_GOBRRR = Path(__file__).parents[1]
_EXAMPLE = os.path.join("lab", "example.py")  # the demonstration's program stands for a user's

_PACKAGES = re.compile(r"[/\\]lib(64)?[/\\](python3(\.\d+)?[/\\])?(site|dist)-packages[/\\]*$", re.IGNORECASE)
"""How a package folder of any prefix ends, also of one that is on the search path alone."""


class Owner(Enum):
    """Whose a file is. `NOBODY`: it is no file ("<string>", "<frozen os>")."""

    USER = "user"
    PACKAGE = "package"  # an installed package, Python's own library, code that torch.compile has written
    TORCH = "torch"
    GOBRRR = "gobrrr"
    NOBODY = "nobody"


@lru_cache(maxsize=1 << 14)
def owner(file: str) -> Owner:
    """Whose the code of a file is."""
    if file.startswith("<"):
        return Owner.NOBODY
    own, torch, packages = _roots(tuple(sys.path), getattr(sys.modules.get("torch"), "__file__", None))
    for root in own:
        if file.startswith(root):
            return Owner.USER if file[len(root) :] == _EXAMPLE else Owner.GOBRRR
    if file.startswith(torch):
        return Owner.TORCH
    return Owner.PACKAGE if file.startswith(packages) or COMPILED_FILE.search(file) else Owner.USER


def is_users(file: str) -> bool:
    """Whether a file is the user's own: not torch's, not gobrrr's, not an installed package's, not Python's."""
    return owner(file) is Owner.USER


@lru_cache(maxsize=8)
def _roots(path: tuple[str, ...], torch: str | None) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The folders of gobrrr, of torch, and of all other packages and Python's library."""
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [os.path.dirname(os.__file__), *site.getsitepackages(), site.getusersitepackages()]
    folders += [one for one in path if _PACKAGES.search(one)]
    return _spelled([str(_GOBRRR)]), _spelled([os.path.dirname(torch)] if torch else []), _spelled(folders)


def _spelled(folders: Iterable[str]) -> tuple[str, ...]:
    """Each with a separator at its end, as it is given and with links followed."""
    ways = [way(folder) for folder in folders for way in (os.path.abspath, os.path.realpath)]
    return tuple(dict.fromkeys(os.path.join(way, "") for way in ways))
