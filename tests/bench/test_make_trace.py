"""Copies of a trace: the layout kept byte for byte, times shifted exactly, ids their own."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.make_trace import copies_for, main, make_trace, read_source

TRACE = """
  {
    "schemaVersion": 1,
    "deviceProperties": [ {"id": 0, "name": "card"} ],
  "traceEvents": [
  {
    "ph": "M", "name": "process_name", "ts": 4955058604189.304, "pid": 1, "args": {"name": "python \\"ts\\": 7"}
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 4955058604189.304, "dur": 10.250,
    "args": {"External id": 5, "Input Dims": [[1, 2], []]}
  },
  {
    "ph": "X", "cat": "kernel", "name": "gemm", "ts": 4955058604195.001, "dur": 3,
    "args": {"External id": 5, "correlation": 9}
  },
  {
    "ph": "s", "id": 9, "ts": 4955058604190, "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "cuda_sync", "name": "wait", "ts": -1.5, "dur": 0,
    "args": {"correlation": 0, "stream": -1, "id": -1}
  }
  ],
  "traceName": "x.json"
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_text(TRACE)
    return path


def events(path: Path) -> list[dict[str, Any]]:
    trace = json.loads(path.read_text(), parse_float=Decimal)
    found = trace if isinstance(trace, list) else trace["traceEvents"]
    assert isinstance(found, list)
    return found


def test_one_copy_is_the_source_byte_for_byte(source: Path, tmp_path: Path) -> None:
    make_trace(source, 1, tmp_path / "out.json")
    assert (tmp_path / "out.json").read_text() == TRACE


@pytest.mark.parametrize("name", ["mlp_tiny.fixed", "pointwise_chain.faulty", "bert_base_b32_s512.fwd_compiled"])
def test_one_copy_of_a_shipped_trace_is_the_trace(name: str, h100: Path, tmp_path: Path) -> None:
    original = h100 / f"{name}.json.gz"
    make_trace(original, 1, tmp_path / "out.json")
    assert (tmp_path / "out.json").read_bytes() == gzip.decompress(original.read_bytes())


def test_times_are_shifted_exactly(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert make_trace(source, 3, out) == 15
    period = read_source(source).period_us
    copied = events(out)
    for copy in range(3):
        times = [Decimal(event["ts"]) - copy * period for event in copied[5 * copy : 5 * copy + 5]]
        assert times == [Decimal(event["ts"]) for event in events(source)]
    assert '"ts": 4955058604189.304' in out.read_text()


def test_copies_do_not_overlap(source: Path, tmp_path: Path) -> None:
    make_trace(source, 2, tmp_path / "out.json")
    timed = [event for event in events(tmp_path / "out.json") if event["ph"] == "X"]
    ends = max(event["ts"] + event["dur"] for event in timed[:3])
    assert min(event["ts"] for event in timed[3:]) > ends


def test_each_copy_has_its_own_ids_and_keeps_their_joins(h100: Path, tmp_path: Path) -> None:
    original, out = h100 / "moe_host_loop.fixed.json.gz", tmp_path / "out.json"
    count = make_trace(original, 2, out) // 2
    copied = events(out)
    first, second = copied[:count], copied[count:]
    for key in ("correlation", "External id"):
        ids = [{event.get("args", {}).get(key, 0) for event in half} - {0, -1} for half in (first, second)]
        assert ids[0]
        assert not ids[0] & ids[1]
        assert len(ids[0]) == len(ids[1])
    stride = read_source(original).id_stride
    flows = [[event["id"] for event in half if event["ph"] in "sf"] for half in (first, second)]
    assert flows[1] == [each + stride if each > 0 else each for each in flows[0]]


def test_everything_but_times_and_ids_is_copied(source: Path, tmp_path: Path) -> None:
    make_trace(source, 2, tmp_path / "out.json")
    first, second = events(tmp_path / "out.json")[:5], events(tmp_path / "out.json")[5:]
    for one, other in zip(first, second, strict=True):
        assert (one["ph"], one["name"], one.get("dur")) == (other["ph"], other["name"], other.get("dur"))
    assert second[0]["args"] == {"name": 'python "ts": 7'}
    assert second[1]["args"]["Input Dims"] == [[1, 2], []]
    assert second[4]["args"] == {"correlation": 0, "stream": -1, "id": -1}
    assert second[2]["args"]["correlation"] == second[3]["id"] != 9


def test_a_bare_list_without_spaces(tmp_path: Path) -> None:
    source, out = tmp_path / "list.json", tmp_path / "out.json"
    source.write_text('[{"ph":"X","ts":1e3,"dur":2,"args":{"correlation":"4"}}]')
    make_trace(source, 2, out)
    assert events(out) == [
        {"ph": "X", "ts": 1000, "dur": 2, "args": {"correlation": "4"}},
        {"ph": "X", "ts": 2002, "dur": 2, "args": {"correlation": "9"}},
    ]


@pytest.mark.parametrize("text", ["{}", '{"traceEvents": []}', "7", '[{"ph": "M", "ts": 1}]'])
def test_what_is_no_trace_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match="no "):
        make_trace(tmp_path / "bad.json", 2, tmp_path / "out.json")


def test_size_by_megabytes(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(source), str(tmp_path / "out.json"), "--target-mb", "0.1"]) == 0
    assert (tmp_path / "out.json").stat().st_size == pytest.approx(1e5, rel=0.1)
    assert "copies" in capsys.readouterr().out
    assert copies_for(read_source(source), 0) == 1


@given(st.lists(st.decimals(min_value=0, max_value=10**13, places=3), min_size=1, max_size=5), st.integers(1, 5))
def test_any_times_are_shifted_exactly(
    tmp_path_factory: pytest.TempPathFactory, times: list[Decimal], copies: int
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    rows = ",\n".join(f'{{"ph": "X", "ts": {time}, "dur": 1.5}}' for time in times)
    (folder / "in.json").write_text(f'{{"traceEvents": [\n{rows}\n]}}')
    make_trace(folder / "in.json", copies, folder / "out.json")
    period = read_source(folder / "in.json").period_us
    wanted = [time + copy * period for copy in range(copies) for time in times]
    assert [Decimal(event["ts"]) for event in events(folder / "out.json")] == wanted
