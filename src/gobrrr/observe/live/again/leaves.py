"""Tensors that come into a step from outside: which they are, and whether they still hold what they held before.

A parameter or a buffer is known by its storage and by what was written into it. Any other tensor is read as well, the
whole of a small one and a sample of a large one: another library may have written into its memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.observe.live.ops.readings import readable
from gobrrr.observe.static.memory import storage_of

MOST_LEAVES = 256
"""Tensors from outside that are told apart; what depends on a further one is not known to stay."""
MOST_BYTES = 32_768
"""A storage up to this size is read as a whole; of a larger one as many bytes, evenly spread."""
MOST_READS = 4_000
"""Storages that are read in a step: on a GPU each is a wait."""

UNKNOWN, LEARNS, KEPT, OTHERS = 1, 2, 4, 3
"""Bits of what a value depends on: a tensor that is not told apart, a parameter that learns, another parameter or a
buffer. From the bit at position `OTHERS` on, each stands for one other tensor from outside."""


class Leaf:
    """One storage from outside. `numbers` and `views`: what was read of it, by look; `written`: by an operation."""

    __slots__ = ("bit", "large", "numbers", "ref", "token", "views", "writes", "written")

    def __init__(self, ref: StorageWeakRef, token: int) -> None:
        self.ref, self.token, self.bit = ref, token, 0
        self.writes = 0
        self.large = self.written = False
        self.numbers: dict[int, set[int]] = {}
        self.views: dict[int, set[int]] = {}


class Leaves:
    """Those of all looks at one program, by storage."""

    def __init__(self) -> None:
        self._known: dict[int, Leaf] = {}
        self._modules: set[int] = set()
        self._roles: dict[int, tuple[StorageWeakRef, int]] = {}  # of parameters and buffers: the bit
        self.attributes: set[int] = set()  # storages of tensors that a module holds and has not registered
        self._others = 0
        self._reads = 0

    @property
    def others(self) -> list[tuple[int, Leaf]]:
        """Those that are neither parameters nor buffers, with their storage's key."""
        return [(key, leaf) for key, leaf in self._known.items() if leaf.bit >> OTHERS]

    def begin(self) -> None:
        """A look begins."""
        self._reads = 0

    def knows(self, module: Any) -> bool:
        """Whether what a module holds was told."""
        return id(module) in self._modules

    def module(self, module: Any) -> None:
        """Before a module's forward: what it holds."""
        if self.knows(module):
            return
        self._modules.add(id(module))
        for parameter in (*module._parameters.values(), *module._buffers.values()):
            storage = storage_of(parameter) if parameter is not None else None
            if storage is not None:
                bit = LEARNS if parameter.requires_grad else KEPT
                self._roles[storage._cdata] = (StorageWeakRef(storage), bit)
        for var in vars(module).values():
            for tensor in _tensors(var if isinstance(var, list | tuple) else (var,)):
                storage = storage_of(tensor)
                if storage is not None:
                    self.attributes.add(storage._cdata)

    def registered(self, key: int) -> bool:
        """Whether a storage is that of a parameter or a buffer which does not learn."""
        role = self._roles.get(key)
        return role is not None and role[1] == KEPT

    def of(self, tensor: Any, storage: Any, look: int) -> Leaf:
        """The leaf of a tensor, with what it holds now noted."""
        key = storage._cdata
        leaf = self._known.get(key)
        if leaf is None or leaf.ref.expired():
            leaf = self._known[key] = Leaf(StorageWeakRef(storage), len(self._known))
            leaf.bit = self._bit(tensor, key)
        return leaf

    def number(self, leaf: Leaf, tensor: Any, storage: Any, look: int) -> int:
        """What stands for the contents."""
        version = 0 if tensor.is_inference() else tensor._version
        if leaf.bit in (LEARNS, KEPT):
            found = hash(("kept", leaf.token, leaf.writes, version))
        else:
            read = self._read(storage, tensor)
            leaf.large = int(storage.nbytes()) > MOST_BYTES
            same = (leaf.token, leaf.writes, version) if leaf.large else ()
            found = hash(("read", int(storage.nbytes()), same, read))
        leaf.numbers.setdefault(look, set()).add(found)
        return found

    def wrote(self, key: int) -> None:
        """An operation has written into a storage."""
        leaf = self._known.get(key)
        if leaf is not None:
            leaf.writes += 1
            leaf.written = True

    def _bit(self, tensor: Any, key: int) -> int:
        role = self._roles.get(key)
        if role is not None and not role[0].expired():
            return role[1]
        if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
            return LEARNS if tensor.requires_grad else KEPT
        if self._others >= MOST_LEAVES:
            return UNKNOWN
        self._others += 1
        return 1 << (OTHERS + self._others - 1)

    def _read(self, storage: Any, tensor: Any) -> Any:
        """What stands for a storage's bytes; an object like no other where they can't be read."""
        self._reads += 1
        with readable(tensor) as yes:
            if not yes or self._reads > MOST_READS:
                return object()
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            if flat.numel() > MOST_BYTES:
                flat = flat[:: (flat.numel() // MOST_BYTES) | 1]  # odd: all bytes of an element have their turn
            return flat.cpu().numpy().tobytes()


def _tensors(values: Any) -> list[Any]:
    return [value for value in values if isinstance(value, torch.Tensor)]
