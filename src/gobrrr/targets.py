"""What a target is: a trace, a step to run, or a mistake that is said in one line."""

from __future__ import annotations

import difflib
import glob
import os
import re
from pathlib import Path
from typing import Any

from gobrrr.errors import InputError, UsageError
from gobrrr.model.profile import Profile
from gobrrr.model.workload import Workload
from gobrrr.report.text import sanitise

STDIN = "-"
_LIVE = re.compile(r"[^:]+:[^\W\d][\w.]*")


def is_live(target: object) -> bool:
    """Whether a target is a step that is run here: a callable, a Workload, or the name of a callable."""
    if isinstance(target, Profile):
        return False
    if callable(target) or isinstance(target, Workload):
        return True
    return isinstance(target, str) and names_a_step(target)


def names_a_step(name: str) -> bool:
    """Whether a target is written "file.py:callable" or "package.module:callable" and is no file of that name."""
    return name != STDIN and "://" not in name and not os.path.exists(name) and _LIVE.fullmatch(name) is not None


def check_target(target: object) -> str:
    """`target` as text, refused in one line when it can't be a trace: it is missing, or is code."""
    if callable(target):
        raise UsageError(f"{called(target)} is a step and no trace: gobrrr.diagnose(step) runs it")
    if not isinstance(target, str | os.PathLike):
        raise UsageError(f"a target is a path, a URL or a Profile, not {type(target).__name__}")
    name = os.fsdecode(target)
    if name == STDIN or "://" in name:
        return name
    exists = os.path.exists(name) or bool(any(mark in name for mark in "*?[") and glob.glob(name))
    if name.endswith(".py"):
        shown = sanitise(name)
        raise UsageError(f"{shown}: a script is run by gobrrr run {shown}; of a file, name the step: {shown}:step")
    if names_a_step(name):
        raise UsageError(f"{sanitise(name)} names a step and no trace: gobrrr diagnose runs it")
    if exists:
        return name
    home = name.rpartition(":")[0]
    if home.endswith(".py") and os.path.exists(home):
        raise UsageError(f"{sanitise(name)}: a step is named {sanitise(home)}:NAME, a callable of that file")
    raise InputError(f"{sanitise(name) or repr(name)}: no such file or folder{_nearest_file(name)}")


def called(target: Any) -> str:
    """What a callable is called, safe to print."""
    return sanitise(str(getattr(target, "__qualname__", None) or type(target).__qualname__))


def _nearest_file(name: str) -> str:
    """A hint: a neighbour with nearly the same name, or what to try without a trace of one's own."""
    path = Path(name)
    try:
        neighbours = [one.name for one in path.parent.iterdir()] if name else []
    except (OSError, ValueError):
        return f"; there is no folder {sanitise(str(path.parent))} either"
    close = difflib.get_close_matches(path.name, neighbours, n=1, cutoff=0.75)
    if close:
        return f"; did you mean {sanitise(str(path.parent / close[0]))}?"
    return "; gobrrr demo reads traces that are shipped with it"
