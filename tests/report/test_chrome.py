"""A replayed timeline as a file: JSON that a trace viewer takes, and that is read back as the step it shows."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.analysis.budget.lead import running
from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.steps import find_steps, without_first
from gobrrr.doors import changes
from gobrrr.doors.changes import Prediction
from gobrrr.doors.pipeline import diagnose
from gobrrr.errors import UsageError
from gobrrr.model.events import DEVICE_KINDS, EventKind, EventTable
from gobrrr.observe.trace import read_trace
from gobrrr.report import chrome
from gobrrr.treatments.framework.together import Combiner
from tests.analysis.tables import Row, launched, table
from tests.conftest import H100, H100_EXTRA

CASES = {
    "mlp_tiny": (H100 / "mlp_tiny.faulty.json.gz", ["cuda-graph"]),
    "moe_host_loop": (H100 / "moe_host_loop.faulty.json.gz", ["grouped-matmul"]),
    "pointwise_chain": (H100 / "pointwise_chain.faulty.json.gz", ["compile"]),
    "gpt2": (H100 / "gpt2_b8_s1024.fwd.json.gz", []),
    "ddp": (H100_EXTRA / "ddp_manual_after.rank0.json.gz", ["comm-overlap"]),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Prediction, Path]:
    """A prediction, and the file that it writes."""
    path, treatments = CASES[request.param]
    made = changes.predict(read_trace(str(path)), treatments)
    target = tmp_path_factory.mktemp("replayed") / f"{request.param}.json"
    made.save_trace(target)
    return made, target


def refused(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def read(path: Path) -> dict[str, Any]:
    return parsed(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def parsed(path: Path, written: int) -> dict[str, Any]:
    """The content of a file as it was written at a time."""
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data, parse_constant=refused)
    return found


def of(path: Path, *phases: str) -> list[dict[str, Any]]:
    return [one for one in read(path)["traceEvents"] if one["ph"] in phases]


def recorded(path: Path) -> list[dict[str, Any]]:
    """The events of the timeline itself, without the tracks of the places."""
    return [one for one in of(path, "X") if one["cat"] != "place"]


def test_it_is_what_a_viewer_takes(case: tuple[Prediction, Path]):
    made, path = case
    for one in read(path)["traceEvents"]:
        assert set(one) >= {"ph", "name", "pid", "tid"}
        assert isinstance(one["name"], str)
        assert isinstance(one["pid"], int)
        assert isinstance(one["tid"], int)
    for one in of(path, "X"):
        assert one["dur"] >= 0
        assert np.isfinite(one["ts"])
        assert one["cat"] in {*chrome.CATEGORIES.values(), "place"}
    assert len(recorded(path)) == len(made.events)
    assert read(path)["gobrrr"]["change"] == changes.title(made.what_if)


def test_each_row_has_a_name(case: tuple[Prediction, Path]):
    _, path = case
    named = {(one["pid"], one["tid"]) for one in of(path, "M") if one["name"] == "thread_name"}
    processes = [one["pid"] for one in of(path, "M") if one["name"] == "process_name"]
    assert len(processes) == len(set(processes))
    rows = {(one["pid"], one["tid"]) for one in of(path, "X")}
    assert rows <= named
    assert {pid for pid, _ in rows} <= set(processes)
    assert all(one["args"]["name"] for one in of(path, "M"))


def test_each_arrow_leads_from_a_launch_to_its_work(case: tuple[Prediction, Path]):
    _, path = case
    tails, heads = of(path, "s"), of(path, "f")
    assert Counter(one["id"] for one in tails) == Counter(one["id"] for one in heads)
    at = {(one["pid"], one["tid"], one["ts"]) for one in of(path, "X")}
    work = {one["args"]["correlation"]: one for one in of(path, "X") if one["args"].get("stream") is not None}
    assert len(tails) >= 0.6 * len(work)
    for one in [*tails, *heads]:
        assert one["cat"] == "ac2g"
        assert (one["pid"], one["tid"], one["ts"]) in at
    for tail, head in zip(tails, heads, strict=True):
        assert tail["id"] == head["id"]
        assert tail["pid"] == 0
        assert head["bp"] == "e"
        assert head["ts"] >= tail["ts"]


def test_events_are_in_order_and_what_is_gone_is_left_out(case: tuple[Prediction, Path]):
    made, path = case
    shown = [(one["ts"], -one["dur"]) for one in recorded(path)]
    assert shown == sorted(shown)
    for thread in {(one["pid"], one["tid"]) for one in recorded(path) if one["pid"]}:
        mine = [one for one in recorded(path) if (one["pid"], one["tid"]) == thread]
        for before, after in pairwise(mine):
            assert after["ts"] >= before["ts"] + before["dur"] - 2e-3, "a stream runs in order"
    kinds = set(np.unique(made.events.kind).tolist())
    assert kinds <= {int(kind) for kind in chrome.CATEGORIES}


def test_work_that_is_merged_into_other_work_is_not_in_the_file():
    """A compiled chain: as many kernels fewer as the graph has lost, and none without a length."""
    profile = read_trace(str(H100 / "pointwise_chain.faulty.json.gz"))
    plain, fused = changes.predict(profile), changes.predict(profile, ["compile"])
    before, after = (len(one.events.on_device) for one in (plain, fused))
    assert after < before == len(profile.ranks[0].events.on_device)
    assert (fused.events.duration_ns[fused.events.on_device] > 0).all()


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_it_is_gzipped_where_its_name_says_so_and_the_same_each_time(tmp_path: Path, name: str):
    made = changes.predict(read_trace(str(H100 / "mlp_tiny.faulty.json.gz")))
    made.save_trace(tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert (first[:2] == b"\x1f\x8b") == name.endswith(".gz")
    made.save_trace(tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    made.save_trace(tmp_path / "plain.json")
    assert read(tmp_path / name) == read(tmp_path / "plain.json")


@pytest.mark.parametrize("where", ["", "no/such/folder/out.json"])
def test_where_it_can_not_be_written_that_is_said(tmp_path: Path, where: str):
    made = changes.predict(read_trace(str(H100 / "mlp_tiny.fixed.json.gz")))
    with pytest.raises(UsageError, match=r"is a folder|does not exist"):
        made.save_trace(tmp_path / where)


@pytest.mark.usefixtures("replay_alone")  # the trace is the replay's own
@pytest.mark.parametrize("name", CASES)
def test_read_back_it_is_the_step_that_was_predicted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With the times as they stand in the file, as a loop goes on with them, the first step in or out."""
    monkeypatch.setattr(Combiner, "stake", lambda *_: None)  # it caps what is told, not the replay
    path, treatments = CASES[name]
    made = changes.predict(read_trace(str(path)), treatments)
    made.save_trace(tmp_path / "out.json.gz")
    read = read_trace(str(tmp_path / "out.json.gz")).ranks[0]
    assert {one.name for one in read.meta.devices} == {made.diagnosis.device}
    events = read.events
    links = link(events)
    steps = find_steps(events, links)
    assert steps.count == made.diagnosis.steps
    found = [running(events, links, one)[1].wall_ns for one in (steps, without_first(events, links, steps))]
    assert min(abs(one / made.what_if.step_ns - 1) for one in found) < 0.02
    assert links.launched > 0.95
    assert steps.missing < 0.02  # no launch without its work


def test_collectives_that_run_beside_the_computing_are_on_a_stream_of_their_own():
    """They were behind it on the same one."""
    path, treatments = CASES["ddp"]
    profile = read_trace(str(path))
    made = changes.predict(profile, treatments)
    before, after = profile.ranks[0].events, made.events
    streams = [set(one.stream[one.on_device].tolist()) for one in (before, after)]
    reductions = [row for row in after.on_device.tolist() if "nccl" in after.name_of(row)]
    assert set(after.stream[reductions].tolist()) & (streams[1] - streams[0])
    computing = [row for row in after.on_device.tolist() if "nccl" not in after.name_of(row)]
    assert set(after.stream[computing].tolist()) <= streams[0]


def events_of(rows: list[Row]) -> EventTable:
    return table(rows)


def test_strange_names_and_rows_without_a_launch(tmp_path: Path):
    """Control characters and quotes survive; work without a launch has no arrow."""
    rows = launched('"quoted" \x1b[31m \u202e <b>', 0, 7_000, 5_000, 1)
    rows += [Row(EventKind.KERNEL, "orphan", 20_000, 1_000, correlation=99), Row(EventKind.SYNC, "wait", 0, 3_000)]
    events = events_of(rows)
    kept = events.take(chrome.kept(events, np.empty(0, dtype=np.int64)))
    assert len(kept) == 3
    chrome.save(kept, tmp_path / "out.json", title='a "title"')
    assert [one["ph"] for one in of(tmp_path / "out.json", "s", "f")] == ["s", "f"]
    assert read(tmp_path / "out.json")["gobrrr"]["change"] == 'a "title"'
    assert len(of(tmp_path / "out.json", "X")) == 3


def test_rows_that_are_left_out_take_their_arrows_along(tmp_path: Path):
    events = events_of(launched("one", 0, 7_000, 5_000, 1) + launched("other", 20_000, 27_000, 5_000, 2))
    kept = events.take(chrome.kept(events, events.of(*DEVICE_KINDS)[:1]))
    chrome.save(kept, tmp_path / "out.json")
    assert [one["id"] for one in of(tmp_path / "out.json", "f")] == [2]


def test_a_timeline_without_events_is_a_file_without_any(tmp_path: Path):
    nothing = events_of([])
    chrome.save(nothing, tmp_path / "out.json")
    assert of(tmp_path / "out.json", "X", "s", "f") == []


def test_what_was_replayed_is_not_deflated_again(tmp_path: Path):
    """The file says what it is: read back, the step is that of the what-if, whatever an event costs to record."""
    made = changes.predict(read_trace(str(H100 / "mlp_tiny.faulty.json.gz")))
    made.save_trace(tmp_path / "then.json")
    found = diagnose(read_trace(str(tmp_path / "then.json")))
    assert found.unprofiled_wall_ns.value == pytest.approx(made.what_if.step_ns, rel=0.02)
    assert found.wall_ns is None
    assert any("replayed" in note for note in found.notes)
