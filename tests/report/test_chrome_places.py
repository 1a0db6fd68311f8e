"""The places in a trace for a viewer: slices that lie in one another, with the place that holds the step marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gobrrr.doors import changes
from gobrrr.model.events import EventKind, EventTable
from gobrrr.observe.trace import read_trace
from gobrrr.report import chrome
from gobrrr.report.chrome_places import Placed
from tests.analysis.tables import Row, launched, table
from tests.conftest import H100
from tests.report.test_held import nodes

STEP, DATA, NET = "a/sick.py(6): step", "a/sick.py(7): step", "a/sick.py(8): step"
PLACES = nodes(
    (None, "program", "the step", None, 1.0, 0, {}),
    (0, "function", STEP, STEP, 1.0, 10, {}),
    (1, "line", "x = torch.tensor(frames)", DATA, None, 0, {"python": 60}),
    (2, "call", "<built-in method tensor>", DATA, 1.0, 60, {"python": 60}),
    (1, "line", "loss = net(x)", NET, None, 0, {"launching": 30}),
    (4, "op", "aten::linear", NET, 2.0, 20, {"launching": 20}),
    (5, "op", "aten::addmm", NET, 2.0, 10, {"launching": 10}),
)


def written(path: Path, events: EventTable, of_event: list[int], held_by: int | None) -> list[dict[str, Any]]:
    """The entries of the tracks of places."""
    chrome.save(events, path, placed=Placed(PLACES, held_by, np.array(of_event)))
    return [one for one in json.loads(path.read_bytes())["traceEvents"] if one["pid"] == 2]


def test_what_follows_in_one_place_is_one_slice_within_those_around_it(tmp_path: Path):
    """A step of 100 us: 60 in a call of line 7, two products from line 8 with a pause between them."""
    rows = [
        Row(EventKind.PYTHON, STEP, 0, 100_000), Row(EventKind.PYTHON, "tensor", 1_000, 60_000),
        Row(EventKind.OP, "aten::linear", 70_000, 10_000), Row(EventKind.OP, "aten::addmm", 71_000, 8_000),
        Row(EventKind.OP, "aten::linear", 85_000, 10_000), Row(EventKind.OP, "aten::addmm", 86_000, 8_000),
    ]  # fmt: skip
    entries = written(tmp_path / "out.json", table(rows), [1, 3, 5, 6, 5, 6], 2)
    slices = {(one["name"], one["ts"], one["dur"]) for one in entries if one["ph"] == "X"}
    assert slices == {
        ("sick.py:6 step()", 0, 100),
        ("sick.py:7 x = torch.tensor(frames) (holds the step)", 1, 60),
        ("tensor()", 1, 60),
        ("sick.py:8 loss = net(x)", 70, 25),
        ("aten::linear", 70, 25),  # what it calls is not told
    }
    assert [one["args"]["source"] for one in entries if one["ph"] == "X" and one["args"].get("held_by")] == [DATA]
    named = {one["args"].get("name") for one in entries if one["ph"] == "M"}
    assert named == {"places of the program", "places of 1/0"}


def test_without_places_there_is_no_track(tmp_path: Path):
    events = table(launched("one", 0, 7_000, 5_000, 1))
    assert written(tmp_path / "out.json", events, [-1] * len(events), None) == []


def test_a_predicted_timeline_has_the_places_of_the_step(tmp_path: Path):
    made = changes.predict(read_trace(str(H100 / "moe_host_loop.faulty.json.gz"), python=True), ["grouped-matmul"])
    made.save_trace(tmp_path / "out.json")
    found = [
        one for one in json.loads((tmp_path / "out.json").read_bytes())["traceEvents"] if one.get("cat") == "place"
    ]
    held = made.diagnosis.places[made.diagnosis.held_by or 0]
    marked = [one for one in found if one["args"].get("held_by")]
    assert {one["args"]["source"] for one in marked} == {held.source}
    assert all(one["name"].endswith("(holds the step)") for one in marked)
    for thread in {one["tid"] for one in found}:
        nested([(one["ts"], one["ts"] + one["dur"]) for one in found if one["tid"] == thread])


def nested(slices: list[tuple[float, float]]) -> None:
    """Each two lie apart, or one within the other: what a viewer can draw."""
    stack: list[float] = []
    for begin, end in sorted(slices, key=lambda one: (one[0], -one[1])):
        while stack and stack[-1] <= begin:
            stack.pop()
        assert not stack or end <= stack[-1] + 1e-6
        stack.append(end)
