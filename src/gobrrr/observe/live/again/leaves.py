"""Tensors that come into a step from outside: which they are, and whether they still hold what they held before.

A parameter or a buffer is identified by its storage and the number of writes to it. Any other tensor is also read, a
small one completely and a large one in samples, because another library may have written to its memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.observe.live.ops.readings import readable
from gobrrr.observe.static.memory import storage_of

MOST_LEAVES = 256
"""Tensors from outside that have a bit of their own; all further ones count as unknown. Chosen."""
MOST_READ_BYTES = 32_768
"""A storage up to this size is read completely; of a larger one this many bytes, evenly spread. Chosen."""
MOST_READS = 4_000
"""Storages that are read in a step: on a GPU each read is a wait. Chosen."""

UNKNOWN_LEAF, LEARNS, FROZEN, FIRST_LEAF_BIT = 1, 2, 4, 3
"""Bits of what a value depends on: a tensor without a bit of its own, a parameter that learns, another parameter or a
buffer. From the bit at position `FIRST_LEAF_BIT` on, each bit stands for one other tensor from outside."""


class Leaf:
    """One storage from outside.

    `numbers` and `views`: what was read of its contents, and which parts of it were used, by look. `written`: whether
    an operation wrote to it.
    """

    __slots__ = ("bit", "large", "numbers", "ref", "token", "views", "writes", "written")

    def __init__(self, ref: StorageWeakRef, token: int) -> None:
        self.ref, self.token, self.bit = ref, token, 0
        self.writes = 0
        self.large = self.written = False
        self.numbers: dict[int, set[int]] = {}
        self.views: dict[int, set[int]] = {}


class Leaves:
    """The leaves of all looks at one program, by storage."""

    def __init__(self) -> None:
        self._known: dict[int, Leaf] = {}
        self._modules: set[int] = set()
        self._roles: dict[int, tuple[StorageWeakRef, int]] = {}  # of parameters and buffers: the bit
        self.attributes: set[int] = set()  # storages of tensors that a module holds as plain attributes
        self._others = 0
        self._reads = 0

    @property
    def others(self) -> list[tuple[int, Leaf]]:
        """The leaves that are neither parameters nor buffers, with their storage's key."""
        return [(key, leaf) for key, leaf in self._known.items() if leaf.bit >> FIRST_LEAF_BIT]

    def begin(self) -> None:
        """A look begins."""
        self._reads = 0

    def knows(self, module: Any) -> bool:
        """Whether `module` was called for a module."""
        return id(module) in self._modules

    def module(self, module: Any) -> None:
        """Before a module's forward: note the tensors that it holds."""
        if self.knows(module):
            return
        self._modules.add(id(module))
        for parameter in (*module._parameters.values(), *module._buffers.values()):
            storage = storage_of(parameter) if parameter is not None else None
            if storage is not None:
                bit = LEARNS if parameter.requires_grad else FROZEN
                self._roles[storage._cdata] = (StorageWeakRef(storage), bit)
        for attribute in vars(module).values():
            for value in attribute if isinstance(attribute, list | tuple) else (attribute,):
                storage = storage_of(value) if isinstance(value, torch.Tensor) else None
                if storage is not None:
                    self.attributes.add(storage._cdata)

    def registered(self, key: int) -> bool:
        """Whether a storage is that of a parameter or a buffer which does not learn."""
        role = self._roles.get(key)
        return role is not None and role[1] == FROZEN

    def of(self, tensor: Any, storage: Any) -> Leaf:
        """The leaf of a tensor."""
        key = storage._cdata
        leaf = self._known.get(key)
        if leaf is None or leaf.ref.expired():
            leaf = self._known[key] = Leaf(StorageWeakRef(storage), len(self._known))
            leaf.bit = self._bit(tensor, key)
        return leaf

    def number(self, leaf: Leaf, tensor: Any, storage: Any, look: int) -> int:
        """The number of its contents; noted in the leaf."""
        version = 0 if tensor.is_inference() else tensor._version
        if leaf.bit in (LEARNS, FROZEN):
            number = hash(("kept", leaf.token, leaf.writes, version))
        else:
            read = self._read(storage, tensor)
            leaf.large = int(storage.nbytes()) > MOST_READ_BYTES
            writes = (leaf.token, leaf.writes, version) if leaf.large else ()
            number = hash(("read", int(storage.nbytes()), writes, read))
        leaf.numbers.setdefault(look, set()).add(number)
        return number

    def wrote(self, key: int) -> None:
        """An operation has written to a storage."""
        leaf = self._known.get(key)
        if leaf is not None:
            leaf.writes += 1
            leaf.written = True

    def _bit(self, tensor: Any, key: int) -> int:
        role = self._roles.get(key)
        if role is not None and not role[0].expired():
            return role[1]
        if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
            return LEARNS if tensor.requires_grad else FROZEN
        if self._others >= MOST_LEAVES:
            return UNKNOWN_LEAF
        self._others += 1
        return 1 << (FIRST_LEAF_BIT + self._others - 1)

    def _read(self, storage: Any, tensor: Any) -> Any:
        """A storage's bytes, or a sample of them; an object like no other where they can't be read."""
        self._reads += 1
        with readable(tensor) as can_read:
            if not can_read or self._reads > MOST_READS:
                return object()
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            if flat.numel() > MOST_READ_BYTES:
                flat = flat[:: (flat.numel() // MOST_READ_BYTES) | 1]  # an odd step: samples every byte of an element
            return flat.cpu().numpy().tobytes()
