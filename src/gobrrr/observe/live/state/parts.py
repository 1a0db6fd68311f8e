"""What a workload is made of: what it names, and what its step's closure and globals hold."""

from __future__ import annotations

import dataclasses
import dis
import functools
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import torch

from gobrrr.model.workload import Workload
from gobrrr.observe.live.state.contents import CONTAINERS

DEEPEST = 4
LONGEST = 1_000
"""A longer list or mapping is data that the step reads, not state."""
SCALARS = (int, float, str, bool, bytes, type(None))


@dataclass
class Parts:
    """Modules, optimizers, tensors and other things with a state. `known`: whether there is anything of these.

    `cells` are the variables of closures, `names` those of modules that the step binds anew, `containers` and `owners`
    (objects with attributes) what may hold a state, `dice` generators of Python's and NumPy's. `iterators` say where
    something is that only goes on.
    """

    modules: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    stateful: list[Any] = field(default_factory=list)
    cells: list[tuple[CellType, Any]] = field(default_factory=list)
    names: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)
    owners: list[Any] = field(default_factory=list)
    dice: list[Any] = field(default_factory=list)
    iterators: list[str] = field(default_factory=list)
    generators: tuple[Any, ...] = ()
    known: bool = False


def parts_of(workload: Workload, *, within: bool = False) -> Parts:
    """What a workload names, and what its callables hold; `within`: also what attributes of its modules hold."""
    found = Parts()
    walk = _Walk(found)
    for one in (workload.model, workload.optimizer, workload.loss, workload.step):
        walk.thing(one, 0)
    scalars = any(isinstance(held, SCALARS) for _, held in found.cells)
    found.known = bool(found.modules or found.optimizers or found.tensors or found.stateful or scalars or found.names)
    for given in (workload.inputs, workload.targets):
        walk.thing(given, 0)
    for holder in _samplers(workload.loader):
        walk.thing(getattr(holder, "generator", None), 0)
    if within:
        walk.attributes()
    return found


def _samplers(loader: Any) -> Iterator[Any]:
    """A loader and what chooses its samples: what may draw from a generator of its own."""
    yield loader
    for name in ("sampler", "batch_sampler"):
        sampler = getattr(loader, name, None)
        yield from (sampler, getattr(sampler, "sampler", None))


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

    def attributes(self) -> None:
        """What the modules hold beside parameters, buffers and modules: caches, counts."""
        internal = internal_names()
        for module in self._found.modules:  # it grows where an attribute holds another one
            for one in module.modules():
                for name, held in list(vars(one).items()):
                    if name not in internal and not isinstance(held, SCALARS):
                        self.thing(held, 1, name)

    def thing(self, value: Any, depth: int, where: str = "") -> None:
        """Sort one thing in, and what it holds; `where` it was found, in words."""
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
        elif isinstance(value, (Mapping, list, tuple, *CONTAINERS)):
            if isinstance(value, CONTAINERS):
                found.containers.append(value)
            if len(value) <= LONGEST:
                for one in list(value.values()) if isinstance(value, Mapping) else value:
                    self.thing(one, depth + 1)
        else:
            if where and hasattr(value, "__next__") and not hasattr(value, "write"):
                found.iterators.append(where)
            self._other(value, depth)

    def _other(self, value: Any, depth: int) -> None:
        if isinstance(value, MethodType):
            self.thing(value.__self__, depth + 1)
            self.thing(value.__func__, depth + 1)
        elif isinstance(value, functools.partial):
            for argument in (value.func, *value.args, *value.keywords.values()):
                self.thing(argument, depth + 1)
        elif isinstance(value, FunctionType):
            self._function(value, depth)
        elif _dice(value):
            self._found.dice.append(value)
        elif callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            self._found.stateful.append(value)
        elif _of_the_user(value):
            if (type(value).__module__ or "").partition(".")[0] not in sys.stdlib_module_names:
                self._found.owners.append(value)
            for name, one in list(vars(value).items()):
                self.thing(one, depth + 1, name)

    def _function(self, function: FunctionType, depth: int) -> None:
        wrapped = getattr(function, "__wrapped__", None)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                held = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._found.cells.append((cell, held))
            if not isinstance(held, SCALARS):
                self.thing(held, depth + 1, name)
        read, bound = _names_of(function.__code__)
        for name in read:
            held = function.__globals__.get(name)
            if name in bound and name in function.__globals__:
                self._found.names.append((function.__globals__, name))
            if _interesting(held, function):
                self.thing(held, depth + 1, name)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), wrapped):
            self.thing(default, depth + 1)


@functools.lru_cache(maxsize=1)
def internal_names() -> frozenset[str]:
    """The attributes that every module has."""
    return frozenset(vars(torch.nn.Module())) | {"_compiled_call_impl"}


@functools.lru_cache(maxsize=256)
def _names_of(code: CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """The names that code and the functions in it look up, and those of its module that it binds."""
    read, bound = dict.fromkeys(code.co_names), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_GLOBAL":
            bound.add(str(instruction.argval))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names, others = _names_of(inner)
            read |= dict.fromkeys(names)
            bound |= others
    return tuple(read), frozenset(bound)


def _interesting(value: Any, function: FunctionType) -> bool:
    """Whether a global may hold state: not a library's function or module of code."""
    if isinstance(value, FunctionType):
        return value.__module__ == function.__module__
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Generator, Mapping, tuple, *CONTAINERS)
    return (
        isinstance(value, kinds)
        or hasattr(type(value), "__next__")
        or _dice(value)
        or _of_the_user(value)
        or hasattr(type(value), "load_state_dict")
    )


def _dice(value: Any) -> bool:
    """A generator of random numbers of Python's or NumPy's."""
    return isinstance(value, random.Random) or hasattr(type(value), "bit_generator")


def _of_the_user(value: Any) -> bool:
    """An object with attributes whose class is not a library's."""
    if not hasattr(value, "__dict__"):
        return False
    home = (getattr(type(value), "__module__", "") or "").partition(".")[0]
    return home not in {"builtins", "torch", "numpy", "functools", "types", "contextlib", "threading", "logging"}
