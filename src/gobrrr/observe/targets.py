"""What "file.py:callable" and "package.module:callable" name, loaded without leaving the search path changed."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gobrrr.errors import InputError, UsageError
from gobrrr.model.workload import Workload
from gobrrr.observe.stepping import Batches, step_of

__all__ = ["TARGET", "Batches", "find_callable", "step_of"]

TARGET = re.compile(r"(?P<home>.+?):(?P<name>[^\W\d][\w.]*)")

MOST_NAMES = 12


LOADED = "_gobrrr_"
"""Before the name of a file that is loaded as a module, so that it hides no other."""


def find_callable(target: str) -> Callable[..., Any]:
    """The callable that `target` names. Raises UsageError or InputError where there is none.

    The file's folder stays on `sys.path` and its module in `sys.modules`, because a step may import when it runs: the
    caller puts them back.
    """
    match = TARGET.fullmatch(target)
    if match is None:
        raise UsageError(f"{target}: a step is named file.py:callable or package.module:callable")
    home, name = match["home"], match["name"]
    module = _file(Path(home)) if home.endswith(".py") else _module(home)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            known = [
                one
                for one, value in vars(module).items()
                if callable(value) and not isinstance(value, type) and not one.startswith("_")
            ]
            more = f" and {len(known) - MOST_NAMES} more" if len(known) > MOST_NAMES else ""
            raise UsageError(f"{home} has no {name}; it has {', '.join(known[:MOST_NAMES]) or 'nothing to call'}{more}")
    if isinstance(found, Workload):
        return lambda: found
    if isinstance(found, type):
        raise UsageError(
            f"{target} is a class: a call of it makes an object and runs no step. Name a function, or an object of the "
            f"class that the file makes, such as step = {found.__name__}()"
        )
    if not callable(found):
        raise UsageError(f"{home}:{name} is no callable but {type(found).__name__}")
    check_arguments(found, target)
    return found  # type: ignore[no-any-return]


def check_arguments(step: Callable[..., Any], name: str) -> None:
    """Refuse what needs arguments: nobody gives it any."""
    try:
        inspect.signature(getattr(step, "forward", step)).bind()
    except TypeError as error:
        raise UsageError(
            f"{name} is called without arguments: {error}. Name a function that needs none and calls it, or one that "
            "returns gobrrr.Workload(step=..., inputs=(...))"
        ) from None
    except ValueError:  # built in: it has none to look at
        pass


def _file(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    name = f"{LOADED}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    try:
        spec.loader.get_code(name)  # type: ignore[attr-defined]
    except (SyntaxError, ValueError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise InputError(f"{path} is not Python: {getattr(error, 'msg', error)}{line}") from None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    sys.argv[:] = [str(path)]
    spec.loader.exec_module(module)
    return module


def _module(name: str) -> Any:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: {error}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
