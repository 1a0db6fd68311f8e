"""Which work waits for which on another stream, as the profiler recorded it (`cuda_sync` events).

A record of a wait names the stream that waits, the stream that it waits for and the call that recorded the event there.
The first work that is launched on the one behind the wait's call waits for the last work that was launched on the other
in front of the event's. Traces without such records say nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from gobrrr.model.events import I8, EventTable, Kind

WAIT = "Stream Wait Event"


def stream_waits(events: EventTable, device: I8, called: I8) -> I8:
    """For each piece of device work (rows `device`, launched at `called`) the index of the work that it waits for, or
    -1."""
    after = np.full(len(device), -1, dtype=np.int64)
    rows = [row for row in events.of(Kind.SYNC).tolist() if events.name_of(row) == WAIT]
    if not rows or not len(device):
        return after
    calls = events.of(Kind.RUNTIME)
    began = dict(zip(events.correlation[calls].tolist(), events.start_ns[calls].tolist(), strict=True))
    for row in rows:
        told = _fields(events, row)
        waits, record = began.get(int(events.correlation[row])), began.get(_number(told.get("wait_on_record")))
        if waits is None or record is None:
            continue
        here = (events.stream[device] == events.stream[row]) & (called >= waits)
        there = (events.stream[device] == _number(told.get("wait_on_stream"))) & (called <= record)
        if not here.any() or not there.any():
            continue
        first = int(np.flatnonzero(here)[np.argmin(called[here])])
        last = int(np.flatnonzero(there)[np.argmax(called[there])])
        if first != last:
            after[first] = _later(events, device, int(after[first]), last)
    return after


def _later(events: EventTable, device: I8, one: int, other: int) -> int:
    if one < 0:
        return other
    return one if events.end_ns[device[one]] >= events.end_ns[device[other]] else other


def _fields(events: EventTable, row: int) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(events.texts[int(events.extra[row])]) if events.extra[row] >= 0 else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1
