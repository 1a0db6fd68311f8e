"""What a workload is made of: what it names, and what its step's closure and globals hold."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from gobrrr.model.workload import Workload

DEEPEST = 4
LONGEST = 1_000
"""A longer list or mapping is data that the step reads, not state."""
SCALARS = (int, float, str, bool, bytes, type(None))


@dataclass
class Parts:
    """Modules, optimizers, tensors and other things with a state. `known`: whether there is anything of these."""

    modules: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    stateful: list[Any] = field(default_factory=list)
    cells: list[tuple[CellType, Any]] = field(default_factory=list)
    generators: tuple[Any, ...] = ()
    known: bool = False


def parts_of(workload: Workload) -> Parts:
    """What a workload names, and what its callables hold."""
    found = Parts()
    walk = _Walk(found)
    for one in (workload.model, workload.optimizer, workload.loss, workload.step):
        walk.thing(one, 0)
    found.known = bool(found.modules or found.optimizers or found.tensors or found.stateful or found.cells)
    for given in (*workload.inputs, *workload.targets):
        walk.thing(given, 0)
    return found


def parameters_of(workload: Workload) -> dict[str, Any]:
    """The parameters that train, by name; those of the optimizer where there is no module."""
    parts = parts_of(dataclasses.replace(workload, inputs=(), targets=()))
    found: dict[str, Any] = {}
    for number, module in enumerate(parts.modules):
        prefix = f"{number}." if number else ""
        found |= {prefix + name: one for name, one in module.named_parameters() if one.requires_grad}
    known = {id(one) for one in found.values()}
    for number, optimizer in enumerate(parts.optimizers):
        held = [one for group in optimizer.param_groups for one in group["params"]]
        found |= {f"optimizer {number}.{i}": one for i, one in enumerate(held) if id(one) not in known}
    return found


def buffers_of(workload: Workload) -> dict[str, Any]:
    """The buffers of floating point, by name."""
    found: dict[str, Any] = {}
    for number, module in enumerate(parts_of(workload).modules):
        prefix = f"{number}." if number else ""
        found |= {prefix + name: one for name, one in module.named_buffers() if one.is_floating_point()}
    return found


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors in whatever holds them: lists, mappings, data classes."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth > DEEPEST:
        return
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from leaves(one, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from leaves(one, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for one in dataclasses.fields(value):
            yield from leaves(getattr(value, one.name, None), depth + 1)


class _Walk:
    def __init__(self, found: Parts) -> None:
        self._found = found
        self._seen: dict[int, Any] = {}

    def thing(self, value: Any, depth: int) -> None:
        """Sort one thing in, and what it holds."""
        if value is None or depth > DEEPEST or isinstance(value, type) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        found = self._found
        if isinstance(value, torch.nn.Module):
            if not any(value is one for module in found.modules for one in module.modules()):
                found.modules.append(value)
        elif isinstance(value, torch.optim.Optimizer):
            found.optimizers.append(value)
        elif isinstance(value, torch.Tensor):
            found.tensors.append(value)
        elif isinstance(value, torch.Generator):
            found.generators = (*found.generators, value)
        elif isinstance(value, Mapping | list | tuple):
            if len(value) <= LONGEST:
                for one in list(value.values()) if isinstance(value, Mapping) else value:
                    self.thing(one, depth + 1)
        else:
            self._other(value, depth)

    def _other(self, value: Any, depth: int) -> None:
        if isinstance(value, MethodType):
            self.thing(value.__self__, depth + 1)
            self.thing(value.__func__, depth + 1)
        elif isinstance(value, functools.partial):
            for one in (value.func, *value.args, *value.keywords.values()):
                self.thing(one, depth + 1)
        elif isinstance(value, FunctionType):
            self._function(value, depth)
        elif callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            self._found.stateful.append(value)
        elif _of_the_user(value):
            for one in list(vars(value).values()):
                self.thing(one, depth + 1)

    def _function(self, function: FunctionType, depth: int) -> None:
        wrapped = getattr(function, "__wrapped__", None)
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            if isinstance(held, SCALARS):
                self._found.cells.append((cell, held))
            else:
                self.thing(held, depth + 1)
        for name in (*function.__code__.co_names,):
            held = function.__globals__.get(name)
            if _interesting(held, function):
                self.thing(held, depth + 1)
        for one in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), wrapped):
            self.thing(one, depth + 1)


def _interesting(value: Any, function: FunctionType) -> bool:
    """Whether a global may hold state: not a library's function or module of code."""
    if isinstance(value, FunctionType):
        return value.__module__ == function.__module__
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Generator, Mapping, list, tuple)
    return isinstance(value, kinds) or _of_the_user(value) or hasattr(type(value), "load_state_dict")


def _of_the_user(value: Any) -> bool:
    """An object with attributes whose class is not a library's."""
    if not hasattr(value, "__dict__"):
        return False
    home = (getattr(type(value), "__module__", "") or "").partition(".")[0]
    return home not in {"builtins", "torch", "numpy", "functools", "types", "contextlib", "threading", "logging"}
