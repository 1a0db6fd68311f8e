"""The objects that a workload's step reaches through closures, arguments and globals, and the names in its code."""

from __future__ import annotations

import functools
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from gobrrr.model.program import ProgramObject
from gobrrr.model.workload import Workload

MOST_REACHED_OBJECTS = 10_000
"""Objects that are looked at, at most; a step holds few. Chosen, not measured."""

LONGEST_STATE_LIST = 1_000
"""Items of a list that may hold state; a longer list is data. Chosen, not measured."""


def reached(workload: Workload) -> Iterator[Any]:
    """The parts of the workload and the objects that its step holds: closure variables, bound arguments and objects,
    and globals that its code names."""
    found = [workload.model, workload.optimizer, workload.loss, workload.step]
    seen: set[int] = set()
    while found and len(seen) < MOST_REACHED_OBJECTS:
        thing = found.pop(0)
        if thing is None or id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, functools.partial):
            found += [thing.func, *thing.args, *thing.keywords.values()]
        elif isinstance(thing, types.MethodType):
            found += [thing.__self__, thing.__func__]
        elif isinstance(thing, types.FunctionType):
            found += [cell.cell_contents for cell in thing.__closure__ or () if _filled(cell)]
            found += [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
            if not _of_torch(thing.__module__):
                found += [thing.__globals__[name] for name in thing.__code__.co_names if name in thing.__globals__]


def modules(workload: Workload) -> list[Any]:
    """The modules that the step holds."""
    import torch

    return [thing for thing in reached(workload) if isinstance(thing, torch.nn.Module)]


def held_tensors(workload: Workload) -> Iterator[Any]:
    """The tensors that the step holds itself, or in lists and mappings that are short enough to be state."""
    import torch

    found = [thing for thing in reached(workload) if isinstance(thing, (torch.Tensor, list, tuple, dict))]
    while found:
        thing = found.pop(0)
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, (list, tuple, dict)) and len(thing) <= LONGEST_STATE_LIST:
            found += thing.values() if isinstance(thing, dict) else thing


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _of_torch(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] == "torch"


def code_of(workload: Workload) -> Iterator[types.CodeType]:
    """The code of the step's functions and of the model's classes, with nested functions, without torch's own."""
    import torch

    kinds: dict[type, None] = {}
    for thing in reached(workload):
        if isinstance(thing, types.FunctionType) and not _of_torch(thing.__module__):
            yield from _within(thing.__code__)
        elif isinstance(thing, torch.nn.Module):
            kinds.update(dict.fromkeys(type(part) for part in thing.modules()))
        elif not isinstance(thing, (type, types.ModuleType, torch.Tensor)):
            kinds[type(thing)] = None
    bases = {base: None for kind in kinds for base in kind.__mro__ if not _of_torch(base.__module__)}
    for kind in bases:
        for part in vars(kind).values():
            function = getattr(part, "__func__", part)
            if isinstance(function, types.FunctionType):
                yield from _within(function.__code__)


def made_of(workload: Workload, thing: Any, given: dict[str, Any] | None = None) -> ProgramObject:
    """An object of the workload: its name in the step's code, and the statement that makes it.

    `given`: the arguments that it was made with, as far as known.
    """
    from gobrrr.observe.installed import is_users
    from gobrrr.observe.live.objects.seen import made
    from gobrrr.observe.live.objects.statements import Sources

    files = dict.fromkeys(code.co_filename for code in code_of(workload))
    return made(type(thing), name_of(workload, thing), Sources(filter(is_users, files)), given)


def name_of(workload: Workload, thing: Any) -> str | None:
    """The name of an object in the step's functions: a closure variable or a global; None where it has none."""
    for function in reached(workload):
        if not isinstance(function, types.FunctionType) or _of_torch(function.__module__):
            continue
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        held = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
        held |= {
            name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__
        }
        for name, value in held.items():
            if value is thing:
                return name
    return None


def in_its_words(workload: Workload, code: str) -> str:
    """The code with the step's own names in place of "model", "optimizer" and "loss_fn"."""
    for word, thing in (("model", workload.model), ("optimizer", workload.optimizer), ("loss_fn", workload.loss)):
        name = name_of(workload, thing) if thing is not None else None
        if name is not None and name != word:
            lines = [text_line.partition("#") for text_line in code.splitlines()]
            code = "\n".join(re.sub(rf"(?<![.\w]){word}\b", name, said) + sharp + note for said, sharp, note in lines)
    return code


def goes_back(workload: Workload) -> bool:
    """Whether the user's own step calls `backward` somewhere."""
    return workload.step is not None and any("backward" in code.co_names for code in code_of(workload))


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _within(constant)


def keywords_of(code: types.CodeType) -> set[str]:
    """The keywords of the calls in a code object."""
    tuples = [constant for constant in code.co_consts if isinstance(constant, tuple)]
    return {name for names in tuples for name in names if isinstance(name, str)}


def everywhere(
    stack: ExitStack,
    workload: Workload,
    function: Callable[..., Any],
    instead: Callable[..., Any],
    kept: dict[str, Any],
) -> None:
    """Replaces a function until the stack closes, in every module that holds it by a name."""
    if "places" not in kept:
        spaces = [vars(module) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]
        spaces += [
            user_function.__globals__
            for user_function in reached(workload)
            if isinstance(user_function, types.FunctionType)
        ]
        kept["places"] = [
            (space, name)
            for space in {id(namespace): namespace for namespace in spaces}.values()
            for name, value in list(space.items())
            if value is function
        ]
    for space, name in kept["places"]:
        if space.get(name) is function:
            stack.callback(space.__setitem__, name, function)
            space[name] = instead
