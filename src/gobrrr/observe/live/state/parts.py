"""What a workload is made of: what it names, and what the closure and the globals of its step hold."""

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

DEEPEST_NESTING = 4
"""How many containers, objects or functions within each other are searched; chosen."""
LONGEST_STATE_CONTAINER = 1_000
"""A list or mapping with more entries is taken for data that the step reads, not for state; chosen."""
SCALARS = (int, float, str, bool, bytes, type(None))
"""Types of values that hold nothing else and can't change."""


@dataclass
class StateParts:
    """Modules, optimizers, tensors and other things with a state. `known`: whether any of these was found.

    `cells`: variables of closures. `names`: global variables that the step assigns. `containers` and `owners` (objects
    with attributes): what may hold a state. `generators`: torch's generators of random numbers; `dice`: those of Python
    and NumPy. `iterators`: the names of iterators, which can't be set back.
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


def parts_of(workload: Workload, *, within: bool = False) -> StateParts:
    """What a workload names, and what its callables hold; `within`: also what attributes of its modules hold."""
    parts = StateParts()
    walk = _Walk(parts)
    for member in (workload.model, workload.optimizer, workload.loss, workload.step):
        walk.thing(member, 0)
    scalars = any(isinstance(held, SCALARS) for _, held in parts.cells)
    parts.known = bool(parts.modules or parts.optimizers or parts.tensors or parts.stateful or scalars or parts.names)
    for data in (workload.inputs, workload.targets):
        walk.thing(data, 0)
    for holder in _samplers(workload.loader):
        walk.thing(getattr(holder, "generator", None), 0)
    if within:
        walk.attributes()
    return parts


def _samplers(loader: Any) -> Iterator[Any]:
    """A loader and its samplers: each may draw from a generator of its own."""
    yield loader
    for name in ("sampler", "batch_sampler"):
        sampler = getattr(loader, name, None)
        yield from (sampler, getattr(sampler, "sampler", None))


def parameters_of(workload: Workload) -> dict[str, Any]:
    """The parameters that train, by name; those of the optimizer where there is no module."""
    parts = parts_of(dataclasses.replace(workload, inputs=(), targets=()))
    parameters: dict[str, Any] = {}
    for number, module in enumerate(parts.modules):
        prefix = f"{number}." if number else ""
        parameters |= {prefix + name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    known = {id(tensor) for tensor in parameters.values()}
    for number, optimizer in enumerate(parts.optimizers):
        held = [tensor for group in optimizer.param_groups for tensor in group["params"]]
        parameters |= {f"optimizer {number}.{i}": tensor for i, tensor in enumerate(held) if id(tensor) not in known}
    return parameters


def buffers_of(workload: Workload) -> dict[str, Any]:
    """The buffers of floating point, by name."""
    buffers: dict[str, Any] = {}
    for number, module in enumerate(parts_of(workload).modules):
        prefix = f"{number}." if number else ""
        buffers |= {prefix + name: tensor for name, tensor in module.named_buffers() if tensor.is_floating_point()}
    return buffers


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors in lists, tuples, mappings and data classes, nested too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth > DEEPEST_NESTING:
        return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field_ in dataclasses.fields(value):
            yield from leaves(getattr(value, field_.name, None), depth + 1)


class _Walk:
    """Goes through what a value holds and sorts it into `parts`, each thing once."""

    def __init__(self, parts: StateParts) -> None:
        self._parts = parts
        self._seen: dict[int, Any] = {}

    def attributes(self) -> None:
        """What the modules hold beside parameters, buffers and modules: caches, counts."""
        internal = internal_names()
        for module in self._parts.modules:  # the list grows where an attribute holds another module
            for submodule in module.modules():
                for name, held in list(vars(submodule).items()):
                    if name not in internal and not isinstance(held, SCALARS):
                        self.thing(held, 1, name)

    def thing(self, value: Any, depth: int, where: str = "") -> None:
        """Sort in one value and what it holds. `where`: the name that holds it; "" for none."""
        if value is None or depth > DEEPEST_NESTING or isinstance(value, type) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        parts = self._parts
        if isinstance(value, torch.nn.Module):
            if not any(value is submodule for module in parts.modules for submodule in module.modules()):
                parts.modules.append(value)
        elif isinstance(value, torch.optim.Optimizer):
            parts.optimizers.append(value)
        elif isinstance(value, torch.Tensor):
            parts.tensors.append(value)
        elif isinstance(value, torch.Generator):
            parts.generators = (*parts.generators, value)
        elif isinstance(value, (Mapping, list, tuple, *CONTAINERS)):
            if isinstance(value, CONTAINERS):
                parts.containers.append(value)
            if len(value) <= LONGEST_STATE_CONTAINER:
                for item in list(value.values()) if isinstance(value, Mapping) else value:
                    self.thing(item, depth + 1)
        else:
            if where and hasattr(value, "__next__") and not hasattr(value, "write"):
                parts.iterators.append(where)
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
        elif _is_generator(value):
            self._parts.dice.append(value)
        elif callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            self._parts.stateful.append(value)
        elif _of_the_user(value):
            if (type(value).__module__ or "").partition(".")[0] not in sys.stdlib_module_names:
                self._parts.owners.append(value)
            for name, held in list(vars(value).items()):
                self.thing(held, depth + 1, name)

    def _function(self, function: FunctionType, depth: int) -> None:
        wrapped = getattr(function, "__wrapped__", None)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                held = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._parts.cells.append((cell, held))
            if not isinstance(held, SCALARS):
                self.thing(held, depth + 1, name)
        read, bound = _names_of(function.__code__)
        for name in read:
            held = function.__globals__.get(name)
            if name in bound and name in function.__globals__:
                self._parts.names.append((function.__globals__, name))
            if _may_hold_state(held, function):
                self.thing(held, depth + 1, name)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), wrapped):
            self.thing(default, depth + 1)


@functools.lru_cache(maxsize=1)
def internal_names() -> frozenset[str]:
    """The attributes that every module has."""
    return frozenset(vars(torch.nn.Module())) | {"_compiled_call_impl"}


@functools.lru_cache(maxsize=256)
def _names_of(code: CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """The names that code and the functions in it look up, and the global names that it assigns."""
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


def _may_hold_state(value: Any, function: FunctionType) -> bool:
    """Whether a global may hold state: no module of code, and no function of another module."""
    if isinstance(value, FunctionType):
        return value.__module__ == function.__module__
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Generator, Mapping, tuple, *CONTAINERS)
    return (
        isinstance(value, kinds)
        or hasattr(type(value), "__next__")
        or _is_generator(value)
        or _of_the_user(value)
        or hasattr(type(value), "load_state_dict")
    )


def _is_generator(value: Any) -> bool:
    """Whether it is a random generator of Python or NumPy."""
    return isinstance(value, random.Random) or hasattr(type(value), "bit_generator")


def _of_the_user(value: Any) -> bool:
    """Whether it is an object with attributes whose class is not a library's."""
    if not hasattr(value, "__dict__"):
        return False
    package = (getattr(type(value), "__module__", "") or "").partition(".")[0]
    return package not in {"builtins", "torch", "numpy", "functools", "types", "contextlib", "threading", "logging"}
