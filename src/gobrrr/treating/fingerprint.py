"""What makes two workloads the same: the code of the step, the model, what it is called with, the settings.

Comments, the values of tensors and where a file lies do not count. A change in a helper of another file does not tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from gobrrr.model.workload import Workload

MOST = 20_000
"""Values that are read at most: a closure may hold anything."""

PLAIN = (bool, int, float, complex, str, bytes, type(None))


def fingerprint(workload: Workload) -> str:
    """16 hexadecimal digits; equal where two workloads do the same with tensors of the same shapes."""
    reader = _Reader()
    for one in fields(workload):
        if one.name != "name":
            reader.add(one.name, getattr(workload, one.name))
    reader.settings()
    return reader.digest()


class _Reader:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, Any] = {}
        self._left = MOST

    def digest(self) -> str:
        return self._hash.hexdigest()[:16]

    def add(self, name: str, value: Any) -> None:
        """Take note of a value, once: what was seen is only named."""
        import torch

        self._left -= 1
        if self._left < 0:
            return
        if isinstance(value, PLAIN):
            self._note(name, type(value).__name__, repr(value)[:200])
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
        elif isinstance(value, FunctionType):
            self._function(name, value)
        elif isinstance(value, MethodType):
            self.add(name, value.__func__)
            self.add(name, value.__self__)
        elif isinstance(value, Mapping):
            self._items(name, ((str(key), item) for key, item in value.items()))
        elif isinstance(value, list | tuple | set | frozenset):
            self._items(name, ((str(at), item) for at, item in enumerate(value)))
        elif isinstance(value, type):
            self._class(name, value)
        else:
            self._object(name, value)

    def _note(self, *parts: Any) -> None:
        self._hash.update("\x1f".join(map(str, parts)).encode("utf-8", "replace") + b"\x1e")

    def _items(self, name: str, items: Iterator[tuple[str, Any]]) -> None:
        self._note(name, "items")
        for key, item in items:
            self.add(key, item)

    def _module(self, name: str, model: Any) -> None:
        self._note(name, type(model).__qualname__, model.training)
        for path, one in model.named_modules():
            self._note(path, type(one).__qualname__, one.extra_repr(), one.training)
            self._class(path, type(one))
        for path, tensor in [*model.named_parameters(), *model.named_buffers()]:
            self.add(path, tensor)

    def _class(self, name: str, kind: type) -> None:
        """The methods of a class of the user's own; of an installed one its name alone."""
        self._note(name, kind.__module__.removeprefix("_gobrrr_"), kind.__qualname__)
        if _installed(kind.__module__) or ("class", kind) in self._seen.values():
            return
        self._seen[-id(kind)] = ("class", kind)
        for key, item in sorted(vars(kind).items()):
            if isinstance(item, FunctionType):
                self.add(key, item)

    def _function(self, name: str, function: FunctionType) -> None:
        self._code(name, function.__code__)
        self.add("defaults", function.__defaults__)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                self.add(key, cell.cell_contents)
            except ValueError:  # not bound yet
                self._note(key, "empty")
        for key in sorted(_names(function.__code__)):
            value = function.__globals__.get(key)
            mine = getattr(value, "__module__", None) == function.__module__
            if isinstance(value, PLAIN) or (isinstance(value, FunctionType | type) and mine):
                self.add(key, value)

    def _code(self, name: str, code: CodeType) -> None:
        self._note(name, code.co_name, code.co_code.hex(), code.co_names, code.co_varnames)
        for one in code.co_consts:
            if isinstance(one, CodeType):
                self._code(name, one)
            elif one != code.co_consts[0] or not isinstance(one, str):  # the first is the docstring
                self._note("constant", repr(one) if not isinstance(one, frozenset) else sorted(map(repr, one)))

    def _object(self, name: str, value: Any) -> None:
        self._note(name, type(value).__module__.removeprefix("_gobrrr_"), type(value).__qualname__)
        if isinstance(value, ModuleType) or _installed(type(value).__module__):
            for key in (
                "batch_size",
                "num_workers",
                "pin_memory",
                "prefetch_factor",
                "persistent_workers",
                "drop_last",
            ):
                if hasattr(value, key):
                    self.add(key, getattr(value, key))
            return
        self._class(name, type(value))
        for key, item in sorted(getattr(value, "__dict__", {}).items()):
            self.add(key, item)

    def settings(self) -> None:
        """What a step's speed depends on beyond its code."""
        import torch

        self._note(
            "settings", torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark,
            torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(),
            torch.get_default_dtype(),
        )  # fmt: skip


def _names(code: CodeType) -> set[str]:
    """The global names that a function and those within it use."""
    found = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found |= _names(one)
    return found


def _installed(module: str) -> bool:
    """Whether a module is one of torch's or of another installed package, by where it lies."""
    import sys

    file = getattr(sys.modules.get(module), "__file__", None)
    if module.startswith("_gobrrr_") or module == "__main__":
        return False
    return file is None or "site-packages" in file or "dist-packages" in file or file.startswith(sys.base_prefix)
