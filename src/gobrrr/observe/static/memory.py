"""Which storages are on the device, how many bytes they hold, and the most that they held at once."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

ALIGN_BYTES = 512
"""The CUDA caching allocator rounds each request up to a multiple of this."""


class Held(NamedTuple):
    """One live storage."""

    ref: weakref.ref[Any]
    size: int
    on_device: bool


class Level:
    """Bytes held: now, when the step began, and at most since then."""

    def __init__(self) -> None:
        self.live = self.start = self.peak = 0

    def add(self, size: int) -> None:
        """More (or, below zero, fewer) bytes are held."""
        self.live += size
        self.peak = max(self.peak, self.live)

    def adopt(self, size: int) -> None:
        """Bytes turn up that were held all the time."""
        self.live += size
        self.start += size
        self.peak += size

    def carry(self, live: int, peak: int) -> None:
        """What was made since these were the figures was there all the time, and the way it was made does not count."""
        made = self.live - live
        self.start += made
        self.peak = peak + made

    def begin(self) -> None:
        """The step begins: from here on the peak counts."""
        self.start = self.peak = self.live


class Memory:
    """Live storages, by weak references: a storage counts until its last tensor is gone.

    `device` holds those on the device alone, `everything` those of the host too.
    """

    def __init__(self) -> None:
        self.device = Level()
        self.everything = Level()
        self._known: dict[int, Held] = {}

    def add(self, tensor: Any, *, on_device: bool, old: bool = False) -> int:
        """Count the tensor's storage if it is new; its bytes then, else 0. `old`: it was there before the step."""
        storage = storage_of(tensor)
        if storage is None or storage._cdata in self._known:
            return 0
        key = storage._cdata
        size = -(-int(storage.nbytes()) // ALIGN_BYTES) * ALIGN_BYTES
        ref = weakref.ref(storage, partial(self._gone, key))
        self._known[key] = Held(ref, size, on_device)
        for level in (self.everything, self.device) if on_device else (self.everything,):
            level.adopt(size) if old else level.add(size)
        return size

    def holds(self, tensor: Any) -> bool:
        """Whether the tensor's storage is known to be on the device."""
        storage = storage_of(tensor)
        found = self._known.get(storage._cdata) if storage is not None else None
        return found is not None and found.on_device

    def begin(self) -> None:
        """The step begins."""
        self.device.begin()
        self.everything.begin()

    @contextmanager
    def carried(self) -> Iterator[None]:
        """What the block makes and leaves behind was there before the step."""
        before = [(level, level.live, level.peak) for level in (self.device, self.everything)]
        try:
            yield
        finally:
            for level, live, peak in before:
                level.carry(live, peak)

    def _gone(self, key: int, _: object) -> None:
        found = self._known.pop(key, None)
        if found is not None:
            self.everything.add(-found.size)
            if found.on_device:
                self.device.add(-found.size)


def storage_of(tensor: Any) -> Any:
    """The tensor's storage; None for sparse and nested tensors, which have none of their own."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
