"""What a target is: a trace, a step to run, or a mistake that is said in one line."""

from __future__ import annotations

import ast
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
MOST_NAMES = 8
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
    if name.endswith(".py") and exists:
        shown = sanitise(name)
        raise UsageError(f"{shown} is no trace: a script is run by gobrrr run {shown}; {_steps_in(name)}")
    if names_a_step(name):
        raise UsageError(f"{sanitise(name)} names a step and no trace: gobrrr diagnose runs it")
    if exists:
        return name
    home = name.rpartition(":")[0]
    if home.endswith(".py") and os.path.exists(home):
        raise UsageError(f"{sanitise(name)}: {_steps_in(home)}")
    raise InputError(f"{sanitise(name) or repr(name)}: no such file or folder{_nearest_file(name)}")


def check_step(name: str) -> None:
    """Refuse a file of Python of which no step is named, and say what it has."""
    if name.endswith(".py") and os.path.exists(name):
        raise UsageError(f"{sanitise(name)}: {_steps_in(name)}")


def _steps_in(file: str) -> str:
    """What in a file of Python can be named as a step, in words. The file is read, not run."""
    shown = sanitise(file)
    names = names_in(file)
    if not names:
        return f"a step is named {shown}:NAME, but no function or Workload of that name stands at the file's top level"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    listed = ", ".join(f"{shown}:{name}" for name in names[:MOST_NAMES])
    return f"name one of its callables: {listed}{more}"


def names_in(file: str) -> list[str]:
    """The names at the top level of a file that may be steps: Workloads, functions called without arguments, others."""
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    workloads: list[str] = []
    plain: list[str] = []
    others: list[str] = []
    for one in body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            needed = len(one.args.posonlyargs) + len(one.args.args) - len(one.args.defaults)
            (others if needed or None in one.args.kw_defaults else plain).append(one.name)
        elif isinstance(one, ast.Assign) and _makes_a_workload(one.value):
            workloads += [name.id for name in one.targets if isinstance(name, ast.Name)]
    return list(dict.fromkeys([*workloads, *plain, *others]))


def _makes_a_workload(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == Workload.__name__


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
