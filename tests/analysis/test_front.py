"""Traces that are replayed in part: the part holds a launch at the least, however many kernels it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gobrrr.analysis.answer import study
from gobrrr.analysis.savings import gains
from gobrrr.doors import changes
from gobrrr.model.soundness import fault
from gobrrr.observe.trace import read_trace

PIECES = 200
PERIOD_US = 2_000


def step(number: int, graphs: int, *, product: bool) -> list[dict[str, Any]]:
    """A step of graph launches with `PIECES` kernels each, and a product behind them."""
    begin, made = number * PERIOD_US * graphs, []
    for graph in range(graphs):
        at, name = begin + graph * PERIOD_US, 1 + number * 10 + graph
        made.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1, "ts": at + 1,
                     "dur": 5, "args": {"correlation": name}})  # fmt: skip
        made += [
            {"ph": "X", "cat": "kernel", "name": f"k{index % 3}", "pid": 0, "tid": 7, "ts": at + 10 + 6 * index,
             "dur": 5, "args": {"stream": 7, "device": 0, "correlation": name}}
            for index in range(PIECES)
        ]  # fmt: skip
    if product:
        at, name = begin + graphs * PERIOD_US - 300, 1000 + number
        made += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": at, "dur": 30,
             "args": {"External id": name, "Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 5, "dur": 5,
             "args": {"correlation": name, "External id": name}},
            {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": at + 20, "dur": 50,
             "args": {"stream": 7, "device": 0, "correlation": name, "External id": name}},
        ]  # fmt: skip
    return made


@pytest.mark.parametrize("marks", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("product", [True, False], ids=["product", "graphs_alone"])
@pytest.mark.parametrize(("steps", "graphs"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_a_graph_of_more_kernels_than_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, graphs: int, product: bool, marks: bool
) -> None:
    monkeypatch.setattr(study, "MOST_LAUNCHES", PIECES // 2)
    monkeypatch.setattr(gains, "MOST_REPLAYED_WORK", PIECES // 2)
    events = [one for number in range(steps) for one in step(number, graphs, product=product)]
    length = PERIOD_US * graphs
    if marks:
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1,
             "ts": number * length, "dur": length - 1}
            for number in range(steps)
        ]  # fmt: skip
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017493504, "numSms": 132}
    (tmp_path / "t.json").write_text(json.dumps({"deviceProperties": [device], "traceEvents": events}))
    profile = read_trace(tmp_path / "t.json")
    found = changes.predict(profile, ["compile", "cuda-graph"], panel=True)
    assert fault(found.diagnosis) is None
    wall = found.diagnosis.unprofiled_wall_ns
    assert wall.how == "estimated"
    assert found.diagnosis.devices[0].kernels == steps * (graphs * PIECES + product)


def test_work_in_front_is_that_of_the_first_launches(tmp_path: Path) -> None:
    events = [one for number in range(6) for one in step(number, 1, product=False)]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    (rank,) = read_trace(tmp_path / "t.json").ranks
    links = study.link(rank.events)
    for most, launches in ((1, 1), (PIECES - 1, 1), (PIECES, 1), (2 * PIECES, 2), (5 * PIECES + 1, 5)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(study, "MOST_LAUNCHES", most)
            part = study._front(rank.events, links)
        assert part is not None
        assert len(part[1].device) == launches * PIECES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "MOST_LAUNCHES", 6 * PIECES)
        assert study._front(rank.events, links) is None
