"""Device time of real traces against plain Python on json and Decimal, to the nanosecond."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from gobrrr.model.events import EventTable
from gobrrr.observe.trace import read_trace
from tests.conftest import public_files
from tests.spread import EVERY, spread

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [ROOT / "src" / "gobrrr" / "data" / "h100", ROOT / "tests" / "data" / "h100"]
ALL = [file for folder in SHIPPED for file in sorted(folder.rglob("*.json.gz"))]
ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}

Totals = dict[int, tuple[int, int, int]]
"""Device -> busy ns, span ns, events."""


def files() -> list[Path]:
    """Of the pairs, which one machine recorded by one program, every third is enough."""
    shipped = [path for folder in SHIPPED for path in sorted(folder.rglob("*.json.gz")) if path.parent.name != "pairs"]
    shipped += sorted((SHIPPED[1] / "pairs").glob("*.json.gz"))[::3]
    return shipped + public_files()


def expected(path: Path) -> Totals:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    data = json.loads(text, parse_float=Decimal)
    spans: dict[int, list[tuple[int, int]]] = {}
    for event in data["traceEvents"] if isinstance(data, dict) else data:
        if event.get("ph") == "X" and str(event.get("cat")).lower() in ON_DEVICE:
            start = int(Decimal(event["ts"]) * 1000)
            device = event.get("args", {}).get("device", event["pid"])
            spans.setdefault(device, []).append((start, start + int(Decimal(event["dur"]) * 1000)))
    return {device: (union(own), extent(own), len(own)) for device, own in spans.items()}


def union(spans: list[tuple[int, int]]) -> int:
    busy, reached = 0, min(start for start, _ in spans)
    for start, end in sorted(spans):
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    return busy


def extent(spans: list[tuple[int, int]]) -> int:
    return max(end for _, end in spans) - min(start for start, _ in spans)


def measured(table: EventTable) -> Totals:
    rows = table.on_device
    totals: Totals = {}
    for device in np.unique(table.device[rows]).tolist():
        own = rows[table.device[rows] == device]
        spans = list(zip(table.start_ns[own].tolist(), table.end_ns[own].tolist(), strict=True))
        totals[device] = (union(spans), extent(spans), len(spans))
    return totals


@pytest.mark.skipif(not files(), reason="no traces here")
@pytest.mark.parametrize("path", spread(files(), 2 * EVERY), ids=lambda path: path.name[:60])
def test_device_time_equals_exact_arithmetic(path: Path) -> None:
    (rank,) = read_trace(path).ranks
    assert measured(rank.events) == expected(path)


@pytest.mark.parametrize("path", spread(ALL), ids=str)
def test_shipped_traces_are_sound(path: Path) -> None:
    profile = read_trace(path)
    assert not [note for note in profile.notes if "no host operation" not in note]
    (rank,) = profile.ranks
    assert {device.name for device in rank.meta.devices} == {"NVIDIA H100 80GB HBM3"}
    assert (np.diff(rank.events.start_ns) >= 0).all()
