"""A saved diagnosis that holds what can't be in one is refused, with what is wrong; every sound one is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gobrrr import cli
from gobrrr.errors import InputError
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.soundness import fault
from gobrrr.report.json import load, to_json
from tests.fuzz import bases
from tests.report import samples

Record = dict[str, Any]


def put(*path: Any) -> Callable[[Record, Any], None]:
    def change(record: Record, value: Any) -> None:
        home: Any = record
        for key in path[:-1]:
            home = home[key]
        home[path[-1]] = value

    return change


DAMAGE: list[tuple[Callable[[Record, Any], None], Any, str]] = [
    (put("budget"), [{"line": "compute", "cause": None, "ns": -1e30, "share": -1e30}], r"budget\[0\].ns is -1e\+30"),
    (put("budget", 0, "ns"), 1.0, r"budget sums to .* ns of"),
    (put("budget", 0, "share"), 7.0, "the shares of budget sum to"),
    (put("ops", 0, "ns"), -5.0, r"ops\[0\].ns is -5"),
    (put("ops", 0, "flop"), 1e61, r"ops\[0\].flop is 1e\+61"),
    (put("totals", "launches"), -1, "totals.launches is -1"),
    (put("coverage", "calls"), 1.5, "coverage.calls is above 1"),
    (put("steps"), 0, "0 steps of 1 ranks"),
    (put("unprofiled_wall_ns", "low"), 1e15, "no interval around its value"),
    (put("unprofiled_wall_ns", "value"), None, "no interval around its value"),
    (put("findings", 0, "at_stake_ns"), [9.0, 1.0], r"findings\[0\].at_stake_ns is from 9 to 1"),
    (put("prescriptions", 0, "predicted_saving_ns"), [-1.0, 1.0], r"predicted_saving_ns is from -1 to 1"),
    (put("prescriptions", 0, "predicted_saving_ns"), [0.0, 1e29], r"predicted_saving_ns is from 0 to 1e\+29"),
    (put("devices", 0, "span_total_ns"), 1, r"devices\[0\] is busy for longer than its span"),
    (put("timeline", "kind", 0), 1_000_000_000, "timeline.kind names number 1000000000 of 3"),
    (put("timeline", "op", 0), 400, "timeline.op names number 400 of"),
    (put("timeline", "op", 0), -2, "timeline.op has -2 in it"),
    (put("timeline", "stream", 0), 64, "timeline.stream names number 64 of"),
    (put("timeline", "gap_cause", 0), 99, "timeline.gap_cause names number 99 of 9"),
    (put("timeline", "duration_ns"), [5], "are not of one length"),
    (put("timeline", "length_ns"), 1, "timeline has work after the end of the step"),
    (put("timeline", "host", 0, "place", 0), 99_999, r"timeline.host\[0\].place names number 99999 of"),
    (put("timeline", "host", 0, "depth"), [0], r"the columns of timeline.host\[0\] are not of one length"),
    (put("timeline", "host", 0, "start_ns", 0), 10**15, r"timeline.host\[0\] has an entry after the end of the step"),
    (put("kernels", 0, "ops"), [123_456], r"kernels\[0\].ops names a row that ops does not have"),
    (put("what_ifs", 1, "step_ns"), 0.0, r"what_ifs\[1\]"),
    (put("what_ifs", 1, "ops"), [{"op": 10_000, "ns": 1.0, "floor_ns": None, "bytes": None}], "names a row that ops"),
    (put("modules"), [{"path": ["A", "B"], "calls": 1, "ns": 1, "compute_ns": 0, "memory_ns": 0, "other_ns": 1}],
     r"modules\[0\] lies in a module that is not listed"),
    (put("held_by"), 99_999, "held_by names number 99999 of"),
    (put("findings", 0, "place"), 99_999, r"findings\[0\].place names number 99999 of"),
    (put("places", 1, "parent"), 1, r"places\[1\] does not come after the place around it"),
    (put("places", 1, "parent"), None, r"places\[1\] does not come after"),
    (put("places", 1, "id"), 7, r"places\[1\].id is 7"),
    (put("findings"), {"a": 1}, "damaged diagnosis: Expected `array`"),
    (put("ops", 0, "ns"), "12", "damaged diagnosis: Expected `float`"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "value", "said"), DAMAGE)
def test_what_is_damaged_is_named(tmp_path: Path, change: Callable[[Record, Any], None], value: Any, said: str) -> None:
    record: Record = json.loads(bases.record(0))
    change(record, value)
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=said) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: a damaged diagnosis: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_no_number_in_the_place_of_one(tmp_path: Path, text: str) -> None:
    record: Record = json.loads(bases.record(0))
    record["ops"][0]["ns"] = 987654321.25
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(record).replace("987654321.25", text))
    with pytest.raises(InputError, match=r"saved\.json"):
        load(path)


def test_the_command_line_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record: Record = json.loads(bases.record(0))
    record["timeline"]["kind"][0] = 7
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(record))
    for more in ([], ["--json"], ["--html", str(tmp_path / "page.html")]):
        assert cli.main(["report", str(path), *more]) == 2
        printed = capsys.readouterr()
        said = f"gobrrr: {path}: a damaged diagnosis: timeline.kind names number 7 of 3\n"
        assert (printed.out, printed.err) == ("", said)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("number", range(2 * len(bases.DIAGNOSED)))
def test_what_is_written_is_sound(tmp_path: Path, number: int) -> None:
    path = tmp_path / "saved.json"
    path.write_bytes(bases.record(number))
    assert to_json(load(path)) == bases.record(number)


@pytest.mark.parametrize("name", samples.ALL)
def test_the_samples_are_sound(name: str) -> None:
    made: Diagnosis = samples.ALL[name]()
    assert fault(made) is None
