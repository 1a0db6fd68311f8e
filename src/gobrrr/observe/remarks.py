"""What a sound table lacks that a diagnosis would need, a sentence each: unknown is said, never taken for zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gobrrr.model.events import ABSENT, EventKind, EventTable
from gobrrr.model.profile import TraceMeta


def remarks(table: EventTable, meta: TraceMeta, *, whole: bool = True) -> Iterator[str]:
    """The sentences, none for a trace that says all that can be said. `whole`: nothing of the file is missing."""
    device = table.on_device
    if not len(device) and not whole:
        yield "no kernel, copy or set on any device is in what could be read: it may lie in what is missing"
        return
    if not len(device):
        yield (
            "no kernel, copy or set on any device was recorded: either the step ran on the CPU alone, or the profiler "
            "was not asked for the device (activities=[CPU, CUDA])"
        )
        return
    if not meta.devices:
        yield "the trace does not say on which device it was recorded (no deviceProperties)"
    if not len(table.of(EventKind.OP)):
        yield (
            "no host operation was recorded (a replayed graph, or a profile without CPU activities): kernels can't be "
            "joined to operations"
        )
    yield from _kernels(table)
    nothing = int((table.duration_ns[device] == 0).sum())
    if nothing:
        yield f"device events with a duration of 0: {nothing:,} of {len(device):,}; the real device time is longer"


def _kernels(table: EventTable) -> Iterator[str]:
    kernels = table.of(EventKind.KERNEL)
    alone = int(np.count_nonzero(table.correlation[kernels] == ABSENT))
    if alone:
        yield (
            f"kernels without a correlation id: {alone:,} of {len(kernels):,}; they can't be joined to the calls that "
            "launched them"
        )
