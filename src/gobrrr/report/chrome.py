"""A replayed timeline as a Chrome trace: the file that Perfetto and chrome://tracing open."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gobrrr.model.events import ABSENT, DEVICE_KINDS, I8, EventKind, EventTable
from gobrrr.report.chrome_places import Placed, slices
from gobrrr.system import files
from gobrrr.system.paths import bytes_without_home

CATEGORIES = {
    EventKind.OP: "cpu_op",
    EventKind.ANNOTATION: "user_annotation",
    EventKind.PYTHON: "python_function",
    EventKind.RUNTIME: "cuda_runtime",
    EventKind.KERNEL: "kernel",
    EventKind.MEMCPY: "gpu_memcpy",
    EventKind.MEMSET: "gpu_memset",
}
"""The categories that torch.profiler writes; events of waits and of the profiler itself are left out."""


def kept(events: EventTable, rows: I8) -> I8:
    """The event rows in the order of the file, without `rows` and without kinds that have no category."""
    shown = np.isin(events.kind, [int(kind) for kind in CATEGORIES])
    shown[rows] = False
    order = np.flatnonzero(shown)
    result: I8 = order[np.lexsort((-events.duration_ns[order], events.start_ns[order]))]
    return result


def save(
    events: EventTable, path: str | PathLike[str], *, title: str = "", device: str | None = None,
    placed: Placed | None = None,
) -> None:  # fmt: skip
    """Write a timeline, gzipped if `path` ends in .gz. `device`: the name of its devices. `placed`: the places of the
    program that the events lie in; they become tracks of their own. Raises UsageError if it can't be written."""
    target = Path(path)
    document = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [{"id": number, "name": device} for number in _devices(events)] if device else [],
        "gobrrr": {"what": "a replayed timeline: estimated, not recorded", "change": title},
        "traceEvents": [*_names(events, device), *_events(events), *_arrows(events), *_places(events, placed)],
    }
    data = bytes_without_home(msgspec.json.encode(document))
    files.write(target, gzip.compress(data, 6, mtime=0) if target.suffix == ".gz" else data)


def _devices(events: EventTable) -> list[int]:
    """The ids of the devices that have work."""
    ids: list[int] = np.unique(events.device[events.of(*DEVICE_KINDS)]).tolist()
    return ids


def _names(events: EventTable, name: str | None) -> Iterator[dict[str, Any]]:
    """Names of the tracks in Perfetto: one process with the host's threads, one per device with its streams."""
    yield _named("process_name", 0, 0, "host")
    for index, thread in enumerate(events.threads):
        yield _named("thread_name", 0, index, thread)
    rows = events.of(*DEVICE_KINDS)
    for device in _devices(events):
        yield _named("process_name", _pid(device), 0, f"device {device}: {name}" if name else f"device {device}")
        for stream in np.unique(events.stream[rows[events.device[rows] == device]]).tolist():
            yield _named("thread_name", _pid(device), stream, f"stream {stream}")


def _places(events: EventTable, placed: Placed | None) -> Iterator[dict[str, Any]]:
    """The tracks of the places, in a process of their own."""
    if placed is None:
        return
    pid = _pid(max(events.device[events.of(*DEVICE_KINDS)].tolist(), default=0) + 1)
    entries = list(slices(events, placed, pid))
    if not entries:
        return
    yield _named("process_name", pid, 0, "places of the program")
    for thread in sorted({entry["tid"] for entry in entries}):
        yield _named("thread_name", pid, thread, f"places of {events.threads[thread]}")
    yield from entries


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _pid(device: int) -> int:
    return device + 1


def _events(events: EventTable) -> Iterator[dict[str, Any]]:
    on_device = np.isin(events.kind, [int(kind) for kind in DEVICE_KINDS])
    columns = (events.kind, events.name, events.start_ns, events.duration_ns, events.thread, events.device,
               events.stream, events.correlation, events.external_id, on_device)  # fmt: skip
    for kind, name, start, duration, thread, device, stream, correlation, external, there in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        args: dict[str, Any] = {}
        if correlation != ABSENT:
            args["correlation"] = correlation
        if external != ABSENT:
            args["External id"] = external
        if there:
            args |= {"device": device, "stream": stream}
        yield {
            "ph": "X",
            "cat": CATEGORIES[EventKind(kind)],
            "name": events.names[name],
            "pid": _pid(device) if there else 0,
            "tid": stream if there else thread,
            "ts": start / 1e3,
            "dur": duration / 1e3,
            "args": args,
        }


def _arrows(events: EventTable) -> Iterator[dict[str, Any]]:
    """Arrows from launches to their work, as torch.profiler draws them; none to work moved before its launch."""
    launches = {
        int(events.correlation[row]): row
        for row in events.of(EventKind.RUNTIME).tolist()
        if events.correlation[row] > 0
    }
    for row in events.of(*DEVICE_KINDS).tolist():
        launch = launches.get(int(events.correlation[row]))
        if launch is None or events.start_ns[row] < events.start_ns[launch]:
            continue
        common = {"cat": "ac2g", "name": "ac2g", "id": int(events.correlation[row])}
        yield {
            **common,
            "ph": "s",
            "pid": 0,
            "tid": int(events.thread[launch]),
            "ts": int(events.start_ns[launch]) / 1e3,
        }
        there = {"pid": _pid(int(events.device[row])), "tid": int(events.stream[row])}
        yield {**common, "ph": "f", "bp": "e", **there, "ts": int(events.start_ns[row]) / 1e3}
