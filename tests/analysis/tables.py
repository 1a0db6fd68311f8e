"""Event tables written by hand, and real traces analysed once for all tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gobrrr.analysis.events.links import Links, link
from gobrrr.analysis.events.steps import StepWindow, find_steps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.doors.pipeline import Examined, diagnose, evidence_of, examine
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.events import ABSENT, COLUMN_TYPES, EventKind, EventTable
from gobrrr.observe.trace import read_trace
from tests.conftest import H100, H100_EXTRA, PUBLIC_TRACES
from tests.once import once

MOST_KEPT = 40
"""So many traces are kept in memory with all their events."""
ON_DEVICE = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)


@dataclass
class Row:
    """One event: times in ns; `thread` by number; for device work `device` and `stream`."""

    kind: EventKind
    name: str
    start: int
    duration: int
    thread: int = 0
    device: int = 0
    stream: int = 7
    correlation: int = ABSENT
    external: int = ABSENT
    bytes: int = ABSENT
    sequence: int = ABSENT
    dims: bytes | None = None
    types: bytes | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def stop(self) -> int:
        return self.start + self.duration


def table(rows: Sequence[Row]) -> EventTable:
    """The rows as columns, sorted as an EventTable promises: by start, longest first."""
    ordered = sorted(rows, key=lambda row: (row.start, -row.duration))
    names = tuple(dict.fromkeys(row.name for row in ordered))
    texts: dict[bytes, int] = {}

    def text(value: bytes | None) -> int:
        return ABSENT if value is None else texts.setdefault(value, len(texts))

    columns: dict[str, list[int]] = {key: [] for key in COLUMN_TYPES}
    for row in ordered:
        device = row.kind in ON_DEVICE
        values = {
            "kind": int(row.kind),
            "name": names.index(row.name),
            "start_ns": row.start,
            "duration_ns": row.duration,
            "thread": row.thread if not device else 100 + row.stream,
            "device": row.device if device else ABSENT,
            "stream": row.stream if device else ABSENT,
            "correlation": row.correlation,
            "external_id": row.external,
            "sequence": row.sequence,
            "bytes": row.bytes,
            "dims": text(row.dims),
            "types": text(row.types),
            "strides": ABSENT,
            "concrete": ABSENT,
            "extra": ABSENT,
        }
        for key, column in columns.items():
            column.append(values.get(key, ABSENT))
    arrays: dict[str, Any] = {key: np.array(columns[key], dtype=kind) for key, kind in COLUMN_TYPES.items()}
    threads = tuple(f"1/{number}" for number in range(200))
    return EventTable(**arrays, names=names, threads=threads, texts=tuple(texts))


def launched(
    name: str, call: int, start: int, duration: int, number: int, *, call_ns: int = 5_000, stream: int = 7,
    kind: EventKind = EventKind.KERNEL, launch: str = "cudaLaunchKernel", thread: int = 0, device: int = 0,
) -> list[Row]:  # fmt: skip
    """A launch at `call` and the device work that it starts at `start`."""
    return [
        Row(EventKind.RUNTIME, launch, call, call_ns, thread=thread, correlation=number),
        Row(kind, name, start, duration, stream=stream, correlation=number, device=device),
    ]


def one(events: EventTable, name: str) -> int:
    """The row of the only event of that name."""
    (row,) = [index for index in range(len(events)) if events.name_of(index) == name]
    return row


@dataclass(frozen=True)
class Read:
    """A trace with its links and steps."""

    events: EventTable
    links: Links
    steps: StepWindow


@cache
def read(path: Path) -> Read:
    """One rank of a real trace."""
    events = read_trace(str(path)).ranks[0].events
    links = link(events)
    return Read(events, links, find_steps(events, links))


@cache
def diagnosis(path: Path) -> Diagnosis:
    """The diagnosis of a file or a folder, made once by all processes of a run."""
    return once(str(path), lambda: diagnose(read_trace(str(path))))


@lru_cache(maxsize=MOST_KEPT)
def evidence(path: Path) -> Evidence:
    """What the conditions receive of the first rank's first device."""
    return evidence_of(read_trace(str(path)).ranks[0])[0]


@lru_cache(maxsize=MOST_KEPT)
def examined(path: Path) -> Examined:
    """The diagnosis with what it was made from."""
    return examine(read_trace(str(path)))


SHIPPED = sorted(H100.glob("*.json.gz"))
DDP = sorted(H100_EXTRA.glob("ddp_*.json.gz"))
HOLDOUT = sorted((H100_EXTRA / "holdout").glob("*.json.gz"))
PUBLIC = sorted(path for path in PUBLIC_TRACES.glob("*/*.json*") if path.is_file()) if PUBLIC_TRACES.is_dir() else []
NO_DEVICE = ("cpu_only", "rank_non_gpu")
"""Public traces without any work on a device."""


def short(path: Path) -> str:
    """A trace's name as a test's id."""
    return path.name.removesuffix(".gz").removesuffix(".json")[:48]
