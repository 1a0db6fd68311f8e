"""Identifies a workload by the code of its step, its model, its arguments and torch's settings.

Comments, the values of tensors and the file's location do not count. It does not notice another version of an installed
package (torch's version is compared separately), nor what the step reads from files or the environment.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from gobrrr.model.plain import PLAIN_TYPES, plain_text
from gobrrr.model.workload import Workload
from gobrrr.observe.installed import is_users

MOST_FINGERPRINTED_VALUES = 20_000
"""Values that are read at most, because a closure may hold anything. Chosen, not measured."""

LONGEST_FINGERPRINTED_LIST = 1_000
"""Values of a list or mapping that are read at most, besides its length. Chosen, not measured."""


def fingerprint(workload: Workload) -> str:
    """16 hexadecimal digits; equal where two workloads do the same with tensors of the same shapes."""
    reader = _Reader()
    for field in fields(workload):
        if field.name != "name":
            reader.add(field.name, getattr(workload, field.name))
    reader.settings()
    return reader.digest()


class _Reader:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, Any] = {}
        self._classes: set[type] = set()
        self._left = MOST_FINGERPRINTED_VALUES

    def digest(self) -> str:
        return self._hash.hexdigest()[:16]

    def add(self, name: str, value: Any) -> None:
        """Add a value to the hash; an object that was seen before adds only its name."""
        import torch

        self._left -= 1
        if self._left < 0:
            return
        if isinstance(value, enum.Enum):
            self._note(name, type(value).__qualname__, value._name_, plain_text(value._value_))
            return
        if isinstance(value, PLAIN_TYPES):
            length = len(value) if isinstance(value, str | bytes) else 0
            self._note(name, type(value).__name__, length, plain_text(value))
            return
        if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
            self._note(name, type(value).__name__, value)
            return
        if id(value) in self._seen:
            self._note(name, "seen")
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._note(name, "tensor", tuple(value.shape), value.stride() if value.layout is torch.strided else "",
                       value.dtype, value.device, value.requires_grad)  # fmt: skip
        elif isinstance(value, torch.nn.Module):
            self._module(name, value)
        elif isinstance(value, torch.optim.Optimizer):
            groups = [{k: v for k, v in group.items() if k != "params"} for group in value.param_groups]
            self._note(name, type(value).__qualname__)
            self.add("groups", groups)
            self.add("sizes", [len(group["params"]) for group in value.param_groups])
        else:
            self._other(name, value)

    def _other(self, name: str, value: Any) -> None:
        if isinstance(value, FunctionType):
            self._function(name, value)
        elif isinstance(value, MethodType):
            self.add(name, value.__func__)
            self.add(name, value.__self__)
        elif isinstance(value, functools.partial):
            self._items(name, [("func", value.func), ("args", value.args), ("keywords", value.keywords)], 3)
        elif isinstance(value, Mapping):
            self._items(
                name,
                ((_key(key), item) for key, item in list(islice(value.items(), LONGEST_FINGERPRINTED_LIST))),
                len(value),
            )
        elif isinstance(value, list | tuple):
            self._items(name, ((str(at), item) for at, item in enumerate(value)), len(value))
        elif isinstance(value, Set):  # sorted, because the order differs between processes
            self._note(
                name, "set", len(value), *(sorted(map(_key, value)) if len(value) <= LONGEST_FINGERPRINTED_LIST else ())
            )
        elif isinstance(value, type):
            self._class(name, value)
        else:
            self._object(name, value)

    def _note(self, *parts: Any) -> None:
        self._hash.update("\x1f".join(map(str, parts)).encode("utf-8", "replace") + b"\x1e")

    def _items(self, name: str, items: Iterable[tuple[str, Any]], count: int) -> None:
        self._note(name, "items", count)
        for at, (key, item) in enumerate(items):
            if at == LONGEST_FINGERPRINTED_LIST or self._left < 0:
                return
            self.add(key, item)

    def _module(self, name: str, model: Any) -> None:
        import torch

        common = vars(torch.nn.Module())
        self._note(name, type(model).__qualname__, model.training)
        for path, module in model.named_modules():
            self._seen[id(module)] = module
            self._note(path, type(module).__qualname__, module.training)
            self._class(path, type(module))
            for key, value in sorted(vars(module).items()):
                if key not in common:  # the number of heads, a flag, a configuration
                    self.add(key, value)
        for path, tensor in [*model.named_parameters(), *model.named_buffers()]:
            self.add(path, tensor)

    def _class(self, name: str, kind: type) -> None:
        """The methods and plain attributes of a user's class; of an installed one only its name."""
        self._note(name, kind.__module__.removeprefix("_gobrrr_"), kind.__qualname__)
        if _installed(kind.__module__) or kind in self._classes:
            return
        self._classes.add(kind)
        for key, item in sorted(vars(kind).items()):
            function = getattr(item, "__func__", None) or getattr(item, "fget", None) or item
            if isinstance(function, FunctionType):
                self.add(key, function)
            elif isinstance(item, (*PLAIN_TYPES, list, tuple, dict)) and not key.startswith("__"):
                self.add(key, item)
        for base in kind.__mro__[1:]:
            if not _installed(base.__module__):
                self._class(name, base)

    def _function(self, name: str, function: FunctionType) -> None:
        self._code(name, function.__code__)
        if _installed(function.__module__ or ""):
            return
        self.add("defaults", function.__defaults__)
        self.add("keywords", function.__kwdefaults__)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                self.add(key, cell.cell_contents)
            except ValueError:  # not bound yet
                self._note(key, "empty")
        names = _names(function.__code__)
        for key in sorted(names):
            value = function.__globals__.get(key)
            if isinstance(value, ModuleType):
                self._home(value, names)
            elif key in function.__globals__:
                self._global(key, value)

    def _home(self, module: ModuleType, names: set[str]) -> None:
        """The globals of another user's module that code with these names may use."""
        if _installed(module.__name__):
            return
        for key in sorted(names & set(vars(module))):
            if not isinstance(vars(module)[key], ModuleType):
                self._global(key, vars(module)[key])

    def _global(self, key: str, value: Any) -> None:
        """A global that the step's code names; of installed functions and classes only the name."""
        if isinstance(value, FunctionType | type) and _installed(value.__module__ or ""):
            self._note(key, value.__module__, value.__qualname__)
        else:
            self.add(key, value)

    def _code(self, name: str, code: CodeType) -> None:
        self._note(name, code.co_name, code.co_code.hex(), code.co_names, code.co_varnames)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._code(name, constant)
            elif constant != code.co_consts[0] or not isinstance(constant, str):  # the first is the docstring
                self._note(
                    "constant", sorted(map(_key, constant)) if isinstance(constant, frozenset) else _key(constant)
                )

    def _object(self, name: str, value: Any) -> None:
        self._note(name, type(value).__module__.removeprefix("_gobrrr_"), type(value).__qualname__)
        if isinstance(value, ModuleType):
            return
        if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
            self._note("array", value.shape, value.dtype)
            return
        held = sorted(getattr(value, "__dict__", {}).items())
        if _installed(type(value).__module__):  # a loader, a configuration: its plain settings
            for key, item in held:
                if isinstance(item, PLAIN_TYPES) and not key.startswith("_"):
                    self.add(key, item)
            return
        self._class(name, type(value))
        slots = [key for kind in type(value).__mro__ for key in _listed(getattr(kind, "__slots__", ()))]
        held += [(key, getattr(value, key)) for key in sorted(slots) if key != "__dict__" and hasattr(value, key)]
        for key, item in held:
            self.add(key, item)

    def settings(self) -> None:
        """Settings of torch on which a step's speed depends."""
        import torch

        self._note(
            "settings", torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark,
            torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(),
            torch.get_default_dtype(),
        )  # fmt: skip


def _names(code: CodeType) -> set[str]:
    """The names that a function and its nested functions use."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _key(value: Any) -> str:
    """A key as text that is the same in every process."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_key, value[:LONGEST_FINGERPRINTED_LIST]))})"
    text = plain_text(value)
    return f"{type(value).__name__} {text}" if text is not None else type(value).__qualname__


def _listed(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _installed(module: str) -> bool:
    """Whether a module belongs to torch or another installed package, by its file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if module.startswith("_gobrrr_") or module == "__main__":
        return False
    return file is None or not is_users(file)
