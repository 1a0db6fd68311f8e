"""What one step uses: its model, its optimizers, its loader, and the float64 tensors that come into it.

The hooks keep objects while the step runs, and only names afterwards. Sources are read when the step is over.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.guarded import GuardedParts
from gobrrr.model.program import Float64Source, ModelInput, Program, ProgramObject
from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.objects.names import Around, Named, around, named
from gobrrr.observe.live.objects.statements import Sources
from gobrrr.observe.static.memory import storage_of
from gobrrr.observe.targets import LOADED

FLOAT64_DTYPES = (torch.float64, torch.complex128)
"""Types of 64-bit floating point."""
PROGRAM_OBJECTS = "the program's objects"
"""What a note says is missing where this fails."""
MOST_NAMED_OBJECTS = 8
"""How many models, optimizers and tensors are named, since each is searched for in all frames; chosen."""


@dataclass(frozen=True)
class _Variable:
    """A name in a file; `function`: the function that assigns it, as `Sources.binding` takes it."""

    name: str
    file: str
    function: str | None


@dataclass(frozen=True)
class _Model:
    kind: type
    name: str | None
    parameters: int
    inputs: tuple[tuple[_Variable, int, str], ...]  # with its dimensions and type
    line: tuple[str, int] | None


@dataclass(frozen=True)
class _Optimizer:
    kind: type
    name: str | None
    defaults: dict[str, Any]


class Objects:
    """Collects the objects of one step. Its hooks: `module` before each module's forward, `optimizer` before each
    optimizer's step, `see` after each operation."""

    def __init__(self) -> None:
        self._parts = GuardedParts()
        self._files: dict[str, None] = {}
        self._models: dict[int, _Model] = {}
        self._optimizers: dict[int, _Optimizer] = {}
        self._loader: tuple[type, str | None] | None = None
        self._looked = False
        self._step: str | None = None
        self._parameters: dict[int, StorageWeakRef] = {}  # storages of float64
        self._made: dict[int, StorageWeakRef] = {}
        self._tensors: set[int] = set()
        self._wide: list[_Variable] = []

    @property
    def failed(self) -> str:
        """What a note says where this failed; "" where it did not."""
        return next(iter(self._parts.failed.values()), "")

    def module(self, module: Any, args: tuple[Any, ...], *, top: bool) -> None:
        """Before a module's forward; `top`: whether no other module calls it."""
        with apart():
            self._parts.make(PROGRAM_OBJECTS, lambda: self._module(module, args, top), None)

    def optimizer(self, optimizer: Any) -> None:
        """Before a step of an optimizer."""
        if id(optimizer) not in self._optimizers and len(self._optimizers) < MOST_NAMED_OBJECTS:
            with apart():
                self._parts.make(PROGRAM_OBJECTS, lambda: self._optimizer(optimizer), None)

    def see(self, read: Iterable[Any], written: Iterable[Any]) -> None:
        """An operation, with the tensors that it read and wrote."""
        for tensor in read:
            if tensor.dtype in FLOAT64_DTYPES and tensor.dim():
                self._parts.make(PROGRAM_OBJECTS, partial(self._comes_in, tensor), None)
        for tensor in written:
            if tensor.dtype in FLOAT64_DTYPES and (storage := storage_of(tensor)) is not None:
                self._made.setdefault(storage._cdata, StorageWeakRef(storage))

    def found(self, files: Iterable[str]) -> Program | None:
        """What was seen; `files`: the user's files that the step ran lines of."""
        return self._parts.make(PROGRAM_OBJECTS, lambda: self._program(Sources([*self._files, *files])), None)

    # -- within the step

    def _module(self, module: Any, args: tuple[Any, ...], top: bool) -> None:
        for parameter in module._parameters.values():
            if (
                parameter is not None
                and parameter.dtype in FLOAT64_DTYPES
                and (storage := storage_of(parameter)) is not None
            ):
                self._parameters[storage._cdata] = StorageWeakRef(storage)
        if not top or id(module) in self._models or len(self._models) >= MOST_NAMED_OBJECTS:
            return
        program = self._look()
        own = getattr(module, "_orig_mod", module)  # what torch.compile wrapped
        found = named(program.frames, partial(operator.is_, module))
        inner = program.frames[-1] if program.frames else None
        self._models[id(module)] = _Model(
            type(own), found.name if found else None, sum(parameter.numel() for parameter in module.parameters()),
            _inputs(args, program), (inner.f_code.co_filename, inner.f_lineno) if inner is not None else None,
        )  # fmt: skip

    def _optimizer(self, optimizer: Any) -> None:
        found = named(self._look().frames, partial(operator.is_, optimizer))
        self._optimizers[id(optimizer)] = _Optimizer(
            type(optimizer), found.name if found else None, dict(getattr(optimizer, "defaults", {}))
        )

    def _look(self) -> Around:
        """The program's frames around a hook."""
        program = around(sys._getframe(1))
        self._files |= dict.fromkeys(frame.f_code.co_filename for frame in program.frames)
        if program.pulled and program.frames and self._step is None:
            called = program.frames[0].f_code.co_name
            self._step = called if called.isidentifier() else None
        if not self._looked:
            self._looked = True
            self._loader = _loader(program)
        return program

    def _comes_in(self, tensor: Any) -> None:
        """Note a float64 tensor that an operation reads, unless it is a parameter or was made in the step."""
        storage = storage_of(tensor)
        if storage is None or len(self._tensors) >= MOST_NAMED_OBJECTS:
            return
        key = storage._cdata
        known = self._parameters.get(key) or self._made.get(key)
        if key in self._tensors or (known is not None and not known.expired()):
            return
        program = around(sys._getframe(1))
        self._files |= dict.fromkeys(frame.f_code.co_filename for frame in program.frames)
        found = named(program.frames, lambda value: _holds(value, key))
        self._tensors.add(key)
        if found is not None:
            self._wide.append(_variable(found))

    # -- afterwards

    def _program(self, sources: Sources) -> Program:
        model = max(self._models.values(), key=lambda model: model.parameters, default=None)
        name = model.name if model is not None else None
        return Program(
            model=made(model.kind, name, sources) if model is not None else None,
            optimizers=tuple(
                made(optimizer.kind, optimizer.name, sources, optimizer.defaults)
                for optimizer in self._optimizers.values()
            ),
            loader=made(*self._loader, sources) if self._loader is not None else None,
            step=self._step,
            inputs=tuple(_input(*entry, sources) for entry in model.inputs) if model is not None else (),
            forward=sources.forward(*model.line) if model is not None and model.line is not None else None,
            wide=tuple(self._widened(sources, name)),
        )

    def _widened(self, sources: Sources, model: str | None) -> list[Float64Source]:
        found = []
        if torch.get_default_dtype() in FLOAT64_DTYPES:
            found.append(Float64Source(kind="default", written=sources.default()))
        if self._parameters:
            found.append(Float64Source(kind="parameters", name=model, written=sources.double(model)))
        for variable in self._wide:
            found.append(
                Float64Source(
                    kind="tensor",
                    name=variable.name,
                    written=sources.binding(variable.name, variable.file, variable.function),
                )
            )
        return found


def _inputs(args: tuple[Any, ...], program: Around) -> tuple[tuple[_Variable, int, str], ...]:
    """The tensors among a call's arguments that have a name in the calling frame."""
    found = []
    for argument in args:
        if not isinstance(argument, torch.Tensor):
            continue
        name = named(program.frames[-1:], partial(operator.is_, argument))
        if name is not None:
            found.append((_variable(name), argument.dim(), str(argument.dtype).removeprefix("torch.")))
    return tuple(found)


def _input(variable: _Variable, dimensions: int, dtype: str, sources: Sources) -> ModelInput:
    local = variable.function not in (None, "<module>")
    written = sources.binding(variable.name, variable.file, variable.function)
    return ModelInput(name=variable.name, dimensions=dimensions, dtype=dtype, local=local, written=written)


def _holds(value: Any, key: int) -> bool:
    """Whether a value is a tensor in the storage with this key."""
    if not issubclass(type(value), torch.Tensor):
        return False
    return getattr(storage_of(value), "_cdata", None) == key


def _variable(found: Named) -> _Variable:
    """A name with the function that assigns it: None (any) for an attribute and for an outer function's variable."""
    code = found.frame.f_code
    function: str | None = "<module>"
    if found.name.startswith("self.") or found.name in code.co_freevars:
        function = None
    elif found.frame.f_locals is not found.frame.f_globals and found.name in found.frame.f_locals:
        function = code.co_name
    return _Variable(found.name, code.co_filename, function)


def _loader(program: Around) -> tuple[type, str | None] | None:
    """The class and the name of the one DataLoader that is being iterated over, if there is one."""
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    # an object refers to its class: so the garbage collector searches all objects, in C
    objects = gc.get_referrers(*_with_subclasses(_BaseDataLoaderIter), *_with_subclasses(DataLoader))
    iterators = [thing for thing in objects if issubclass(type(thing), _BaseDataLoaderIter)]
    loaders = [thing for thing in objects if issubclass(type(thing), DataLoader)]
    used = [loader for loader in loaders if any(_is_of(iterator, loader) for iterator in iterators)]
    names = [named(program.frames, partial(operator.is_, loader)) for loader in used[:MOST_NAMED_OBJECTS]]
    known = [(type(loader), name.name) for loader, name in zip(used, names, strict=False) if name is not None]
    if len(known) == 1:  # any number of others may be in use elsewhere
        return known[0]
    return (type(used[0]), None) if len(used) == 1 else None


def _with_subclasses(base: type) -> list[type]:
    """A class and all its subclasses."""
    subclasses: list[type] = type.__subclasses__(base)
    return [base, *(kind for subclass in subclasses for kind in _with_subclasses(subclass))]


def _is_of(iterator: Any, loader: Any) -> bool:
    same = getattr(iterator, "_dataset", None) is loader.dataset
    return same and getattr(iterator, "_index_sampler", None) is loader._index_sampler


def made(kind: type, name: str | None, sources: Sources, given: dict[str, Any] | None = None) -> ProgramObject:
    """The record of an object of a class; `given`: the arguments that it was made with, as far as known."""
    torchs_step = getattr(getattr(kind, "step", None), "__module__", "").startswith("torch.optim")
    bases = (base.__name__ for base in kind.__mro__ if base.__module__.startswith("torch.optim"))
    return ProgramObject(
        kind=_spelled(kind),
        base=next(bases, None) if torchs_step else None,
        name=name,
        written=sources.making(kind, name, given),
    )


_SHORT = (("torch.optim.", "torch.optim"), ("torch.utils.data.", "torch.utils.data"), ("torch.nn.modules.", "torch.nn"))
"""How the names of torch's inner modules begin, and the module that users import their classes from."""


def _spelled(kind: type) -> str:
    module = kind.__module__.removeprefix(LOADED)
    home = next((short for inner, short in _SHORT if module.startswith(inner)), module)
    return kind.__qualname__ if home == "__main__" else f"{home}.{kind.__qualname__}"
