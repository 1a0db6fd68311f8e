"""What a workload's step is made of beyond what was handed over, and what its code names."""

from __future__ import annotations

import functools
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from gobrrr.model.program import Made
from gobrrr.model.workload import Workload

MOST = 10_000
"""Objects that are looked at: a step holds few."""

LONGEST = 1_000
"""A longer list is data."""


def reached(workload: Workload) -> Iterator[Any]:
    """What the workload is made of and what its step holds: closures, their objects, bound arguments, globals that
    its code names."""
    found = [workload.model, workload.optimizer, workload.loss, workload.step]
    seen: set[int] = set()
    while found and len(seen) < MOST:
        one = found.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, functools.partial):
            found += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, types.MethodType):
            found += [one.__self__, one.__func__]
        elif isinstance(one, types.FunctionType):
            found += [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
            found += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
            if not _of_torch(one.__module__):
                found += [one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__]


def held_tensors(workload: Workload) -> Iterator[Any]:
    """The tensors that the step holds itself, or in lists and mappings that are not too long to be state."""
    import torch

    found = [one for one in reached(workload) if isinstance(one, (torch.Tensor, list, tuple, dict))]
    while found:
        one = found.pop(0)
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple, dict)) and len(one) <= LONGEST:
            found += one.values() if isinstance(one, dict) else one


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _of_torch(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] == "torch"


def code_of(workload: Workload) -> Iterator[types.CodeType]:
    """The code of the step's functions and of the model's classes, with the functions within; torch's own left out."""
    import torch

    kinds: dict[type, None] = {}
    for one in reached(workload):
        if isinstance(one, types.FunctionType) and not _of_torch(one.__module__):
            yield from _within(one.__code__)
        elif isinstance(one, torch.nn.Module):
            kinds.update(dict.fromkeys(type(part) for part in one.modules()))
        elif not isinstance(one, (type, types.ModuleType, torch.Tensor)):
            kinds[type(one)] = None
    bases = {base: None for kind in kinds for base in kind.__mro__ if not _of_torch(base.__module__)}
    for kind in bases:
        for part in vars(kind).values():
            function = getattr(part, "__func__", part)
            if isinstance(function, types.FunctionType):
                yield from _within(function.__code__)


def made_of(workload: Workload, thing: Any, given: dict[str, Any] | None = None) -> Made:
    """What is known of an object of the workload: what its step's code calls it, and the statement that makes it.

    `given`: what it was made with, as far as known.
    """
    from gobrrr.observe.installed import is_users
    from gobrrr.observe.live.objects.seen import made
    from gobrrr.observe.live.objects.statements import Sources

    files = dict.fromkeys(code.co_filename for code in code_of(workload))
    return made(type(thing), name_of(workload, thing), Sources(filter(is_users, files)), given)


def name_of(workload: Workload, thing: Any) -> str | None:
    """What the functions of a workload's step call an object: a variable of an outer function, or a global."""
    for one in reached(workload):
        if not isinstance(one, types.FunctionType) or _of_torch(one.__module__):
            continue
        cells = zip(one.__code__.co_freevars, one.__closure__ or (), strict=False)
        held = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
        held |= {name: one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__}
        for name, value in held.items():
            if value is thing:
                return name
    return None


def in_its_words(workload: Workload, code: str) -> str:
    """Code in which "model", "optimizer" and "loss_fn" have the names that the workload's step has for its own."""
    for word, thing in (("model", workload.model), ("optimizer", workload.optimizer), ("loss_fn", workload.loss)):
        name = name_of(workload, thing) if thing is not None else None
        if name is not None and name != word:
            lines = [text_line.partition("#") for text_line in code.splitlines()]
            code = "\n".join(re.sub(rf"(?<![.\w]){word}\b", name, said) + sharp + note for said, sharp, note in lines)
    return code


def goes_back(workload: Workload) -> bool:
    """Whether a step of the user's own calls `backward` somewhere."""
    return workload.step is not None and any("backward" in code.co_names for code in code_of(workload))


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _within(constant)


def keywords_of(code: types.CodeType) -> set[str]:
    """The keywords that the calls in a piece of code use."""
    tuples = [constant for constant in code.co_consts if isinstance(constant, tuple)]
    return {name for one in tuples for name in one if isinstance(name, str)}


def everywhere(
    stack: ExitStack,
    workload: Workload,
    function: Callable[..., Any],
    instead: Callable[..., Any],
    kept: dict[str, Any],
) -> None:
    """Puts another function in the place of one until the stack closes, in every module that holds it by a name."""
    if "places" not in kept:
        spaces = [vars(module) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]
        spaces += [one.__globals__ for one in reached(workload) if isinstance(one, types.FunctionType)]
        kept["places"] = [
            (space, name)
            for space in {id(one): one for one in spaces}.values()
            for name, value in list(space.items())
            if value is function
        ]
    for space, name in kept["places"]:
        if space.get(name) is function:
            stack.callback(space.__setitem__, name, function)
            space[name] = instead
