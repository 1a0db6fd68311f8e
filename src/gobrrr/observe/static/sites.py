"""Where in the program an operation is called from: the nn.Modules around it and the line of the user's code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from gobrrr.model.recording import Site
from gobrrr.observe.installed import Owner, owner

DEEPEST = 200
Around = Callable[[Callable[..., Any]], Callable[..., Any]]


class Sites:
    """The site of the operation that is being dispatched, as an index into `found`."""

    def __init__(self) -> None:
        self.found: list[Site] = []
        self.module_calls = 0
        self.compiled = False
        self._index: dict[tuple[Any, ...], int] = {}
        self._stack: list[str] = []
        self._names: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._paths: list[str] = []
        self._around: list[Any] = []
        self._inner: dict[int, dict[int, str]] = {}

    @contextmanager
    def following(self, around: Around = lambda hook: hook) -> Iterator[None]:
        """Keep the stack of modules while the step runs; every hook is gone afterwards. `around` is put around each."""
        hooks = (
            torch.nn.modules.module.register_module_forward_pre_hook(around(self._enter)),
            torch.nn.modules.module.register_module_forward_hook(around(self._leave), always_call=True),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def inside(self) -> bool:
        """Whether a module's forward runs."""
        return bool(self._stack)

    def here(self) -> int:
        """The site of the caller."""
        source, user = self._lines()
        return self._add(tuple(self._stack), source, user, tuple(self._paths))

    def adopt(self, site: Site) -> int:
        """A site that another recording found."""
        return self._add(site.modules, site.source, site.user, site.paths)

    def _add(self, modules: tuple[str, ...], source: str | None, user: str | None, paths: tuple[str, ...]) -> int:
        key = (modules, source, user, paths)
        at = self._index.get(key)
        if at is None:
            at = self._index[key] = len(self.found)
            self.found.append(Site(modules, source, user, paths))
        return at

    def line(self) -> str | None:
        """The innermost line of the user's own code; of a package's where there is none."""
        source, user = self._lines()
        return user or source

    def where(self) -> str:
        """That line as "path/file.py:12"."""
        found = re.match(r"(.*)\((\d+)\): ", self.line() or "")
        return f"{found[1]}:{found[2]}" if found else "an unknown line"

    def _enter(self, module: Any, _: Any) -> None:
        self.module_calls += 1
        self.compiled |= type(module).__name__ == "OptimizedModule"
        self._paths.append(self._path(module))
        self._around.append(module)
        self._stack.append(self.name(module))

    def _leave(self, module: Any, _: Any, __: Any) -> None:
        name = self.name(module)
        # an exception in a module leaves its children on the stack
        while self._stack:
            self._paths.pop()
            self._around.pop()
            if self._stack.pop() == name:
                break

    def _path(self, module: Any) -> str:
        """Where a module is in the one around it, as the program would write it: "GPT.blocks.3.attention"."""
        if not self._around:
            return type(module).__name__
        parent = self._around[-1]
        names = self._inner.setdefault(id(parent), {})
        if id(module) not in names:
            names |= {id(one): name for name, one in parent.named_modules()}
        name = names.setdefault(id(module), type(module).__name__)
        return f"{self._paths[-1]}.{name}" if name else self._paths[-1]

    def name(self, module: Any) -> str:
        """The profiler's name for a module: its class, numbered in order of appearance."""
        name = self._names.get(id(module))
        if name is None:
            kind = type(module).__name__
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            name = self._names[id(module)] = f"{kind}_{number}"
        return name

    def _lines(self) -> tuple[str | None, str | None]:
        """(innermost line outside torch, innermost line outside installed packages)."""
        frame: FrameType | None = sys._getframe(2)
        source: str | None = None
        depth = 0
        while frame is not None and depth < DEEPEST:
            whose = owner(frame.f_code.co_filename)
            if whose is Owner.USER:
                return source or _spelled(frame), _spelled(frame)
            if whose is Owner.PACKAGE and source is None:
                source = _spelled(frame)
            frame = frame.f_back
            depth += 1
        return source, None


def _spelled(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}({frame.f_lineno}): {code.co_name}"
