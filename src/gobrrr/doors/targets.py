"""Whether a target is a trace or a step to run; a mistake is explained in one line."""

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

MOST_SUGGESTED_STEPS = 8
"""Steps of a file that an error message names; chosen."""

_LIVE = re.compile(r"[^:]+:[^\W\d][\w.]*")
"""The name of a step: "file.py:callable" or "package.module:callable"."""


def is_live(target: object) -> bool:
    """Whether a target is a step that is run here: a callable, a Workload, or the name of a callable."""
    if isinstance(target, Profile):
        return False
    if callable(target) or isinstance(target, Workload):
        return True
    return isinstance(target, str) and names_a_step(target)


def names_a_step(name: str) -> bool:
    """Whether a target is written "file.py:callable" or "package.module:callable", and no such file exists."""
    return name != STDIN and "://" not in name and not os.path.exists(name) and _LIVE.fullmatch(name) is not None


def check_target(target: object) -> str:
    """The path or URL of a trace, as text. Raises UsageError for code, InputError for a missing file."""
    if callable(target):
        raise UsageError(f"{called(target)} is a step, not a trace; run it with gobrrr.diagnose(step)")
    if not isinstance(target, str | os.PathLike):
        raise UsageError(f"a target is a path, a URL or a Profile, not {type(target).__name__}")
    name = os.fsdecode(target)
    if name == STDIN or "://" in name:
        return name
    exists = os.path.exists(name) or bool(any(mark in name for mark in "*?[") and glob.glob(name))
    if name.endswith(".py") and exists:
        shown = sanitise(name)
        raise UsageError(f"{shown} is a script, not a trace; run it with gobrrr run {shown}, or {_steps_in(name)}")
    if names_a_step(name):
        raise UsageError(f"{sanitise(name)} is a step, not a trace; run it with gobrrr diagnose")
    if exists:
        return name
    home = name.rpartition(":")[0]
    if home.endswith(".py") and os.path.exists(home):
        raise UsageError(f"{sanitise(name)}: {_steps_in(home)}")
    raise InputError(f"{sanitise(name) or repr(name)}: no such file or folder{_nearest_file(name)}")


def check_step(name: str) -> None:
    """Raise UsageError for a Python file without the name of a step; the message lists the names."""
    if name.endswith(".py") and os.path.exists(name):
        raise UsageError(f"{sanitise(name)}: {_steps_in(name)}")


def _steps_in(file: str) -> str:
    """The steps that a Python file offers, in words. The file is read, not run."""
    shown = sanitise(file)
    names = names_in(file)
    if not names:
        return f"name a step as {shown}:NAME (the file has no function or Workload at its top level)"
    more = f" and {len(names) - MOST_SUGGESTED_STEPS} more" if len(names) > MOST_SUGGESTED_STEPS else ""
    listed = ", ".join(f"{shown}:{name}" for name in names[:MOST_SUGGESTED_STEPS])
    return f"name one of its callables: {listed}{more}"


def names_in(file: str) -> list[str]:
    """Names at the top level of a file that may be steps: Workloads, functions without required arguments, others."""
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    workloads: list[str] = []
    plain: list[str] = []
    others: list[str] = []
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            needed = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
            (others if needed or None in node.args.kw_defaults else plain).append(node.name)
        elif isinstance(node, ast.Assign) and _makes_a_workload(node.value):
            workloads += [name.id for name in node.targets if isinstance(name, ast.Name)]
    return list(dict.fromkeys([*workloads, *plain, *others]))


def _makes_a_workload(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == Workload.__name__


def called(target: Any) -> str:
    """The name of a callable, safe to print."""
    return sanitise(str(getattr(target, "__qualname__", None) or type(target).__qualname__))


def _nearest_file(name: str) -> str:
    """A hint for a missing file: one beside it with nearly the same name, or the shipped traces."""
    path = Path(name)
    try:
        neighbours = [entry.name for entry in path.parent.iterdir()] if name else []
    except (OSError, ValueError):
        return f"; there is no folder {sanitise(str(path.parent))} either"
    close = difflib.get_close_matches(path.name, neighbours, n=1, cutoff=0.75)
    if close:
        return f"; did you mean {sanitise(str(path.parent / close[0]))}?"
    return "; gobrrr demo shows the traces that are shipped with it"
