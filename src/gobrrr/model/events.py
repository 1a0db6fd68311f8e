"""Events as columns. A trace has millions of events, so there is no Python object for each.

Times are int64 nanoseconds from the start of the trace. An integer column holds -1 where the trace says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

I8 = NDArray[np.int64]
I4 = NDArray[np.int32]
F8 = NDArray[np.float64]
"""Types of columns: integer or float, and the bytes of an item."""
Mask = NDArray[np.bool_]
RawJson = bytes

ABSENT = -1
"""In an integer column: the trace says nothing."""


class EventKind(IntEnum):
    """What an event is, decided by its category alone (never by its arguments)."""

    OP = 1  # a framework operation on the host (`aten::addmm`)
    ANNOTATION = 2  # record_function, ProfilerStep, Optimizer.step
    PYTHON = 3  # a Python or nn.Module frame
    RUNTIME = 4  # a call into the driver: launch, copy, synchronize, allocate
    SYNC = 5  # the profiler's own record of a wait between streams, events and the host
    OVERHEAD = 6  # the profiler's own work
    KERNEL = 10
    MEMCPY = 11
    MEMSET = 12
    GPU_ANNOTATION = 20  # an annotation as it is repeated on a stream; not work
    OTHER = 30


DEVICE_KINDS = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)
"""The kinds that are work on a device."""


@dataclass(frozen=True, kw_only=True)
class EventTable:
    """A struct of arrays, a row per event, sorted by start (ties: longest first, so that a parent precedes its child).

    `name` is an index into `names`, `thread` into `threads` ("process/thread" as in the trace). `dims`, `types`,
    `strides`, `concrete` and `extra` are indices into `texts`: raw JSON from the trace, parsed only for the operations
    that need it. A parser must expect any JSON, and invalid UTF-8 in its strings. Names are those of the trace, control
    characters included: a renderer removes them.

    `device` and `stream` are set for work on a device, its annotations and its waits. `correlation` joins work on a
    device to the call that launched it, `external_id` a call to its operation, `sequence` an operation of the backward
    pass to its operation of the forward pass. `bytes`: the size that a copy, a set or an allocation records; `blocks`:
    the thread blocks of a kernel's grid. `extra`: a JSON object with what a collective ("collective", "in_elements",
    "out_elements", "group_size", "dtype") or a wait ("sync_kind", "wait_on_stream", "wait_on_record") records.
    """

    kind: NDArray[np.uint8]
    name: I4
    start_ns: I8
    duration_ns: I8
    thread: I4
    device: I4
    stream: I8
    correlation: I8
    external_id: I8
    sequence: I8
    bytes: I8
    blocks: I8
    dims: I4
    types: I4
    strides: I4
    concrete: I4
    extra: I4
    names: tuple[str, ...] = field(default=())
    threads: tuple[str, ...] = field(default=())
    texts: tuple[RawJson, ...] = field(default=())  # raw JSON behind dims, types, strides, concrete, extra

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def end_ns(self) -> I8:
        """The end of each event, in ns from the start of the trace; read-only, because the array is shared."""
        ends = self.start_ns + self.duration_ns
        ends.setflags(write=False)
        return ends

    def of(self, *kinds: EventKind) -> NDArray[np.int64]:
        """The rows of the given kinds, in order of start."""
        mask = np.zeros(len(self), dtype=bool)
        for kind in kinds:
            mask |= self.kind == int(kind)
        return np.flatnonzero(mask)

    @property
    def on_device(self) -> I8:
        """The rows of device work: kernels, copies and sets."""
        return self.of(*DEVICE_KINDS)

    def take(self, rows: NDArray[np.int64]) -> EventTable:
        """The same table with only `rows`."""
        kept: dict[str, Any] = {key: column[rows] for key, column in self.columns()}
        return EventTable(**kept, names=self.names, threads=self.threads, texts=self.texts)

    def columns(self) -> Iterator[tuple[str, NDArray[np.generic]]]:
        """(field, array) of each column."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                yield item.name, value

    def name_of(self, row: int) -> str:
        """The name of one event."""
        return self.names[int(self.name[row])]


COLUMN_TYPES: dict[str, type[np.generic]] = {
    "kind": np.uint8,
    "name": np.int32,
    "start_ns": np.int64,
    "duration_ns": np.int64,
    "thread": np.int32,
    "device": np.int32,
    "stream": np.int64,
    "correlation": np.int64,
    "external_id": np.int64,
    "sequence": np.int64,
    "bytes": np.int64,
    "blocks": np.int64,
    "dims": np.int32,
    "types": np.int32,
    "strides": np.int32,
    "concrete": np.int32,
    "extra": np.int32,
}
"""The dtype of each column of `EventTable`."""
