"""Which work waits for which on another stream, as the profiler recorded it (`cuda_sync` events).

A record of a wait names the waiting stream, the stream that it waits for, and the call that recorded the event there.
The first work launched on the waiting stream after the wait's call waits for the last work launched on the other stream
before the event's call. Traces without such records say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from gobrrr.model.events import I8, EventKind, EventTable

STREAM_WAIT_RECORD = "Stream Wait Event"
"""The name of the profiler's record of a wait."""


def stream_waits(events: EventTable, device: I8, called: I8) -> I8:
    """For each piece of device work (rows `device`, launched at `called`), the index of the work that it waits for, or
    -1."""
    after = np.full(len(device), -1, dtype=np.int64)
    wait_rows = [row for row in events.of(EventKind.SYNC).tolist() if events.name_of(row) == STREAM_WAIT_RECORD]
    if not wait_rows or not len(device):
        return after
    calls = events.of(EventKind.RUNTIME)
    began = dict(zip(events.correlation[calls].tolist(), events.start_ns[calls].tolist(), strict=True))
    streams = _by_stream(events.stream[device], called)
    for row in wait_rows:
        record = _fields(events, row)
        waited, recorded = began.get(int(events.correlation[row])), began.get(_number(record.get("wait_on_record")))
        waiting, awaited = streams.get(int(events.stream[row])), streams.get(_number(record.get("wait_on_stream")))
        if waited is None or recorded is None or waiting is None or awaited is None:
            continue
        first, last = waiting.first_from(waited), awaited.last_until(recorded)
        if first >= 0 and last >= 0 and first != last:
            after[first] = _later(events, device, int(after[first]), last)
    return after


@dataclass(frozen=True)
class _Launched:
    """The work of one stream in the order of its launches."""

    work: I8
    called: I8

    def first_from(self, when: int) -> int:
        """The first work launched at an instant or later; -1 for none."""
        at = int(np.searchsorted(self.called, when))
        return int(self.work[at]) if at < len(self.work) else -1

    def last_until(self, when: int) -> int:
        """The last work launched up to an instant, the first of several at the same time; -1 for none."""
        at = int(np.searchsorted(self.called, when, side="right")) - 1
        return int(self.work[np.searchsorted(self.called, self.called[at])]) if at >= 0 else -1


def _by_stream(stream: I8, called: I8) -> dict[int, _Launched]:
    order = np.lexsort((called, stream))
    edges = np.flatnonzero(np.diff(stream[order])) + 1
    parts = np.split(order, edges)
    return {int(stream[part[0]]): _Launched(part, called[part]) for part in parts}


def _later(events: EventTable, device: I8, first: int, second: int) -> int:
    if first < 0:
        return second
    return first if events.end_ns[device[first]] >= events.end_ns[device[second]] else second


def _fields(events: EventTable, row: int) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(events.texts[int(events.extra[row])]) if events.extra[row] >= 0 else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return record if isinstance(record, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1
