"""What a program holds between two steps: tensors, their graphs, hooks. Where it grows, the results that hold it.

The program is looked at between steps: through the garbage collector's list of objects, and along the autograd graph
from each result that is alive. No operation of a step is followed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.guarded import GuardedParts
from gobrrr.model.recording import HeldMemory, SurvivingResult
from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.clock import on_gpu
from gobrrr.observe.static.memory import storage_of

HELD_OBJECTS = "what is held from step to step"
"""What a note says is missing where this fails."""
MOST_NODES = 500_000
"""Nodes of graphs that are counted; a training step of a 70B model has 20,000."""
MOST_RESULTS = 64
"""Results whose graphs are measured one by one; nothing is said of the graphs of others. Chosen."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""The attributes in which a module keeps its hooks."""

Origins = Mapping[int, tuple[str, str | None]]
"""The operation and the line that made what a storage holds, by storage."""


_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer))


class _Made(NamedTuple):
    """What a step made, with the number of nodes in its graph."""

    ref: StorageWeakRef
    op: str
    source: str | None
    nodes: int

    @property
    def place(self) -> tuple[str, str | None]:
        return self.op, self.source

    def kept(self, bytes_: int, *, chain: bool) -> SurvivingResult:
        return SurvivingResult(op=self.op, source=self.source, nodes=self.nodes, chain=chain, bytes=bytes_)


class HeldWatch:
    """Call `boundary` between steps. `found`: what was held at each boundary.

    `kept`: results that are still alive when the next step has ended, or whose graph goes back through earlier steps.
    `before`: how many steps had run before the first recorded one.
    """

    def __init__(self, parts: GuardedParts | None = None) -> None:
        self.before: int | None = None
        self._parts = parts if parts is not None else GuardedParts()
        self.found: list[HeldMemory] = []
        self.kept: tuple[SurvivingResult, ...] = ()
        self._before: dict[int, _Made] = {}

    def begin(self, step: int, lead_in: int) -> None:
        """Steps will be recorded, after `lead_in` more steps."""
        self.before = step + lead_in
        self.boundary(step)

    @property
    def failed(self) -> bool:
        """Whether nothing is known because looking between steps failed."""
        return HELD_OBJECTS in self._parts.failed

    def boundary(self, step: int, made: Callable[[], Origins] | None = None) -> None:
        """Between two steps. `step`: how many have run; `made`: what the step made that was looked at and has ended."""
        if not self.failed:
            self._parts.make(HELD_OBJECTS, lambda: self._boundary(step, made() if made is not None else None), None)

    def _boundary(self, step: int, made: Origins | None) -> None:
        with apart():
            tensors, hooks = _objects()
            results = [tensor for tensor in tensors if tensor.grad_fn is not None]
            storages = (storage for storage in map(storage_of, tensors) if storage is not None)
            sizes = {storage._cdata: int(storage.nbytes()) for storage in storages}
            self.found.append(
                HeldMemory(
                    step=step,
                    nodes=_reached(result.grad_fn for result in results),
                    tensors=len(tensors),
                    bytes=sum(sizes.values()),
                    device_bytes=int(torch.cuda.memory_allocated()) if on_gpu() else None,
                    hooks=hooks,
                )
            )
            if made is not None:
                self._results(tensors, made)

    def _results(self, tensors: list[Any], made: Origins) -> None:
        now: dict[int, _Made] = {}
        kept: dict[int, SurvivingResult] = {}
        graphs = 0
        for tensor in sorted(tensors, key=lambda tensor: tensor.grad_fn is None):  # of a storage, a result first
            storage = storage_of(tensor)
            key = storage._cdata if storage is not None else 0
            earlier = self._before.get(key)
            if earlier is not None and not earlier.ref.expired() and key not in made:
                kept.setdefault(key, earlier.kept(int(storage.nbytes()), chain=False))
            elif key in made and key not in now:
                graphs += tensor.grad_fn is not None
                measured = tensor.grad_fn is not None and graphs <= MOST_RESULTS
                nodes = _reached([tensor.grad_fn]) if measured else 0
                now[key] = _Made(StorageWeakRef(storage), *made[key], -1 if nodes is None else nodes)
        last = {result.place: result.nodes for result in self._before.values()}
        longer = [result for result in now.values() if result.nodes > last.get(result.place, result.nodes)]
        chains = [result.kept(0, chain=True) for result in longer]
        self._before, self.kept = now, (*kept.values(), *chains)


def _objects() -> tuple[list[Any], int]:
    """(all living tensors, how many hooks modules and tensors have)."""
    tensors: list[Any] = []
    hooks = 0
    is_module: dict[type, bool] = {}
    for thing in gc.get_objects():
        kind = type(thing)  # not isinstance, which asks a proxy for what it stands for
        if kind not in is_module:
            is_module[kind] = torch.nn.Module in kind.__mro__
        if kind in _TENSORS:
            tensors.append(thing)
            hooks += len(thing._backward_hooks or ())
        elif is_module[kind]:
            hooks += sum(len(vars(thing).get(name) or ()) for name in HOOKS)
    return tensors, hooks


def _reached(nodes: Iterable[Any]) -> int | None:
    """How many nodes of graphs are reached from these; None where there are too many to count."""
    seen = set(nodes)
    left = list(seen)
    while left:
        for node, _ in left.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                left.append(node)
        if len(seen) > MOST_NODES:
            return None
    return len(seen)
