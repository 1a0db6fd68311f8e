"""What a program holds between two steps: tensors, their graphs, hooks. Of what grows, the results that hold it.

The program is looked at from outside, between steps: through the garbage collector's list of objects, and along the
graph from each result that is there. No operation of a step is told of.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.guarded import Parts
from gobrrr.model.recording import Held, Kept
from gobrrr.observe.live.apart import apart
from gobrrr.observe.static.memory import storage_of

PART = "what is held from step to step"
MOST_NODES = 500_000
"""Nodes of graphs that are walked; a training step of a 70B model has 20,000."""
MOST_RESULTS = 64
"""Results whose graph is measured for itself; of others nothing is said of their graphs."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

Origins = Mapping[int, tuple[str, str | None]]
"""The operation and the line of what a look saw made, by storage."""


class _Made(NamedTuple):
    ref: StorageWeakRef
    op: str
    source: str | None
    nodes: int

    @property
    def place(self) -> tuple[str, str | None]:
        return self.op, self.source

    def kept(self, bytes_: int, *, chain: bool) -> Kept:
        return Kept(op=self.op, source=self.source, nodes=self.nodes, chain=chain, bytes=bytes_)


class HeldWatch:
    """Told of boundaries between steps. `found`: what was held at each; `kept`: results that are there when the next
    step has ended, or whose graph goes through earlier steps.

    `before`: steps that had run before the first recorded one.
    """

    def __init__(self, parts: Parts | None = None) -> None:
        self.before: int | None = None
        self._parts = parts if parts is not None else Parts()
        self.found: list[Held] = []
        self.kept: tuple[Kept, ...] = ()
        self._before: dict[int, _Made] = {}

    def begin(self, step: int, lead_in: int) -> None:
        """Steps will be recorded, from `lead_in` steps on."""
        self.before = step + lead_in
        self.boundary(step)

    @property
    def failed(self) -> bool:
        """Whether nothing is known, because a look between steps failed."""
        return PART in self._parts.failed

    def boundary(self, step: int, made: Callable[[], Origins] | None = None) -> None:
        """`step`: how many have run; `made`: of the step that was looked at and has ended."""
        if not self.failed:
            self._parts.make(PART, lambda: self._boundary(step, made() if made is not None else None), None)

    def _boundary(self, step: int, made: Origins | None) -> None:
        with apart():
            tensors, hooks = _objects()
            results = [tensor for tensor in tensors if tensor.grad_fn is not None]
            sizes = {one._cdata: int(one.nbytes()) for one in map(storage_of, tensors) if one is not None}
            self.found.append(
                Held(
                    step=step,
                    nodes=_reached(result.grad_fn for result in results),
                    tensors=len(tensors),
                    bytes=sum(sizes.values()),
                    device_bytes=_allocated(),
                    hooks=hooks,
                )
            )
            if made is not None:
                self._results(tensors, made)

    def _results(self, tensors: list[Any], made: Origins) -> None:
        now: dict[int, _Made] = {}
        kept: dict[int, Kept] = {}
        graphs = 0
        for tensor in sorted(tensors, key=lambda one: one.grad_fn is None):  # a result stands for those of its storage
            storage = storage_of(tensor)
            key = storage._cdata if storage is not None else 0
            earlier = self._before.get(key)
            if earlier is not None and not earlier.ref.expired() and key not in made:
                kept.setdefault(key, earlier.kept(int(storage.nbytes()), chain=False))
            elif key in made and key not in now:
                graphs += tensor.grad_fn is not None
                nodes = (
                    _reached([tensor.grad_fn] if tensor.grad_fn is not None else []) if graphs <= MOST_RESULTS else 0
                )
                now[key] = _Made(StorageWeakRef(storage), *made[key], -1 if nodes is None else nodes)
        last = {(one.op, one.source): one.nodes for one in self._before.values()}
        chains = [one.kept(0, chain=True) for one in now.values() if one.nodes > last.get(one.place, one.nodes)]
        self._before, self.kept = now, (*kept.values(), *chains)


def _objects() -> tuple[list[Any], int]:
    """(all tensors that are there, how many hooks hang on modules and tensors)."""
    kinds: dict[type, int] = {}
    tensors: list[Any] = []
    hooks = 0
    for thing in gc.get_objects():
        kind = type(thing)  # not isinstance, which asks an object that stands for another
        which = kinds.get(kind)
        if which is None:
            which = kinds[kind] = _which(kind)
        if which == 1:
            tensors.append(thing)
            hooks += len(thing._backward_hooks or ())
        elif which == 2:
            hooks += sum(len(vars(thing).get(name) or ()) for name in HOOKS)
    return tensors, hooks


def _which(kind: type) -> int:
    if kind in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return 1
    return 2 if torch.nn.Module in kind.__mro__ else 0


def _reached(nodes: Iterable[Any]) -> int | None:
    """How many nodes of graphs are reached; None where they are too many to count."""
    seen = set(nodes)
    left = list(seen)
    while left:
        for one, _ in left.pop().next_functions:
            if one is not None and one not in seen:
                seen.add(one)
                left.append(one)
        if len(seen) > MOST_NODES:
            return None
    return len(seen)


def _allocated() -> int | None:
    """Bytes that tensors hold on the GPU; None without one."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    return int(torch.cuda.memory_allocated())
