"""Small traces made by hand, and the numbers that hold for them by construction."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from gobrrr.model.events import EventTable

DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "numSms": 132,
          "computeMajor": 9, "computeMinor": 0}  # fmt: skip


def kernel(name: str = "gemm", ts: Any = 10.0, dur: Any = 5.0, correlation: Any = 1, **more: Any) -> dict[str, Any]:
    """A kernel on device 0, stream 7."""
    args = {"device": 0, "stream": 7, "correlation": correlation, "External id": 3}
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}
    return event | more


def launch(ts: Any = 8.0, dur: Any = 1.0, correlation: Any = 1, **more: Any) -> dict[str, Any]:
    """The call that launched it."""
    args = {"External id": 3, "correlation": correlation}
    event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": ts, "dur": dur}
    return event | {"args": args} | more


def op(name: str = "aten::mm", ts: Any = 7.0, dur: Any = 3.0, external_id: Any = 3, **more: Any) -> dict[str, Any]:
    """The operation around the call."""
    args = {"External id": external_id, "Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]}
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur, "args": args}
    return event | more


def step() -> list[dict[str, Any]]:
    """An operation, its launch and its kernel: a sound trace without anything to remark on."""
    return [op(), launch(), kernel()]


def trace(events: list[Any], **around: Any) -> dict[str, Any]:
    """The object that Kineto writes; `around` adds or replaces keys, None takes one away."""
    fields = {"schemaVersion": 1, "deviceProperties": [DEVICE], "record_shapes": 1} | around
    return {key: value for key, value in fields.items() if value is not None} | {
        "traceEvents": events,
        "traceName": "t",
    }


def write(path: Path, content: Any) -> str:
    """Write bytes as they are, anything else as JSON; gzip where the name says so. Returns the path as text."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def rows(table: EventTable) -> list[tuple[Any, ...]]:
    """The table with its indices resolved: equal for equal events, in whatever order strings were interned."""
    columns = [
        [table.names[index] for index in table.name.tolist()],
        [table.threads[index] for index in table.thread.tolist()],
    ]
    columns += [[_json(table, index) for index in getattr(table, key).tolist()] for key in RAW]
    plain = [column.tolist() for key, column in table.columns() if key not in {"name", "thread", *RAW}]
    return list(zip(*columns, *plain, strict=True))


RAW = ("dims", "types", "strides", "concrete", "extra")


def _json(table: EventTable, index: int) -> str | None:
    return None if index < 0 else json.dumps(json.loads(table.texts[index].decode("utf-8", "replace")))


def busy_ns(table: EventTable, device: int = 0) -> int:
    """Device-busy time by marking every nanosecond: slow, and simple enough to be right."""
    chosen = [row for row in table.on_device.tolist() if table.device[row] == device]
    ticks = np.zeros(int(table.end_ns.max()) + 1, dtype=bool)
    for row in chosen:
        ticks[int(table.start_ns[row]) : int(table.end_ns[row])] = True
    return int(ticks.sum())
