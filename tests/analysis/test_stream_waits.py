"""Waits between streams that the profiler recorded: which work they hold up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import NO_COST
from gobrrr.analysis.events.stream_waits import stream_waits
from gobrrr.analysis.replay.graph import graph_of
from gobrrr.analysis.replay.simulator import run
from gobrrr.observe.trace import read_trace


def event(category: str, name: str, start: float, length: float, **args: Any) -> dict[str, Any]:
    on_device = category in ("kernel", "cuda_sync")
    where = {"pid": 0, "tid": args.get("stream", 1)} if on_device else {"pid": 7, "tid": 7}
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length, "args": args, **where}


def launched(name: str, number: int, call: float, start: float, length: float, stream: int) -> list[dict[str, Any]]:
    return [
        event("cuda_runtime", "cudaLaunchKernel", call, 2.0, correlation=number),
        event("kernel", name, start, length, correlation=number, stream=stream, device=0),
    ]


def trace(folder: Path, *, told: bool, wait_on: int = 7) -> Path:
    """A kernel of 500 us on stream 7, an event behind it, and a copy on stream 20 that waits for it and begins late."""
    events = [
        *launched("first", 1, 0.0, 5.0, 500.0, 7),
        event("cuda_runtime", "cudaEventRecord", 10.0, 1.0, correlation=2),
        event("cuda_runtime", "cudaStreamWaitEvent", 12.0, 1.0, correlation=3),
        *launched("second", 4, 20.0, 560.0, 50.0, 20),
    ]
    if told:
        events.append(
            event(
                "cuda_sync",
                "Stream Wait Event",
                14.0,
                1.0,
                correlation=3,
                stream=20,
                device=0,
                cuda_sync_kind="Stream Wait Event",
                wait_on_stream=wait_on,
                wait_on_cuda_event_record_corr_id=2,
            )
        )
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def told_by(path: Path) -> list[int]:
    """The index of what each piece of work waits for, by the records alone."""
    events = read_trace(str(path)).ranks[0].events
    links = link(events)
    return stream_waits(events, links.device, events.start_ns[links.launch]).tolist()


def test_a_recorded_wait_holds_up_the_work_behind_it(tmp_path: Path):
    assert told_by(trace(tmp_path, told=True)) == [-1, 0]


def test_a_wait_for_a_stream_without_work_holds_up_nothing(tmp_path: Path):
    assert told_by(trace(tmp_path, told=True, wait_on=9)) == [-1, -1]


def test_without_a_record_nothing_is_told(tmp_path: Path):
    assert told_by(trace(tmp_path, told=False)) == [-1, -1]


def test_a_run_keeps_to_it(tmp_path: Path):
    events = read_trace(str(trace(tmp_path, told=True))).ranks[0].events
    found = graph_of(events, link(events), NO_COST, 0, int(events.end_ns.max()))
    slow = replace(found, duration=found.duration * [4.0, 1.0])
    assert run(slow).begin[1] >= run(slow).end[0] == pytest.approx(2_005_000)


@pytest.mark.parametrize("told", ["[]", "{", '{"wait_on_stream": "7"}'])
def test_records_that_say_nothing_hold_up_nothing(told: str, tmp_path: Path):
    path = trace(tmp_path, told=True)
    text = json.loads(path.read_text())
    text["traceEvents"][-1]["args"] = {"stream": 20, "correlation": 3, "cuda_sync_kind": told}
    path.write_text(json.dumps(text))
    assert told_by(path) == [-1, -1]
