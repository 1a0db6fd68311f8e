"""The places as a flame graph's file: its structure is speedscope's, and its weights are the step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from gobrrr import cli
from gobrrr.errors import UsageError
from gobrrr.report.json import save as save_diagnosis
from gobrrr.report.speedscope import to_speedscope
from tests.analysis.tables import diagnosis
from tests.conftest import H100
from tests.report import samples
from tests.report.test_held import BUILDING, nodes


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    """The types of speedscope's own description of its file (src/lib/file-format-spec.ts), from which its schema is
    made: here of what a sampled profile may have."""

    name: str
    file: str | msgspec.UnsetType = msgspec.UNSET
    line: float | msgspec.UnsetType = msgspec.UNSET
    col: float | msgspec.UnsetType = msgspec.UNSET


class Profile(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["sampled"]
    name: str
    unit: Literal["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
    startValue: float
    endValue: float
    samples: list[list[int]]
    weights: list[float]


class Shared(msgspec.Struct, forbid_unknown_fields=True):
    frames: list[Frame]


class File(msgspec.Struct, forbid_unknown_fields=True):
    schema: Literal["https://www.speedscope.app/file-format-schema.json"] = msgspec.field(name="$schema")
    shared: Shared
    profiles: list[Profile]
    name: str | msgspec.UnsetType = msgspec.UNSET
    activeProfileIndex: int | msgspec.UnsetType = msgspec.UNSET
    exporter: str | msgspec.UnsetType = msgspec.UNSET


def valid(data: bytes) -> Any:
    """The document; it is what speedscope's description says, and its numbers name what there is."""
    file = msgspec.json.decode(data, type=File)
    assert 0 <= file.activeProfileIndex < len(file.profiles)
    for one in file.profiles:
        assert len(one.samples) == len(one.weights)
        assert one.startValue <= one.endValue
        assert all(0 <= frame < len(file.shared.frames) for stack in one.samples for frame in stack)
    return json.loads(data)


def written(places: Any = BUILDING) -> Any:
    return valid(to_speedscope(samples.diagnosis(places=places, held_by=3)))


def stacks(document: Any, at: int) -> dict[tuple[str, ...], int]:
    """Each stack of a profile, by the names of its frames, with its weight."""
    profile, frames = document["profiles"][at], document["shared"]["frames"]
    return {
        tuple(frames[one]["name"] for one in stack): ns
        for stack, ns in zip(profile["samples"], profile["weights"], strict=True)
    }


def test_each_place_is_a_stack_from_the_program_down_with_its_own_time():
    step, line = ("the step", "step"), "net(x).backward()"
    assert stacks(written(), 0) == {
        step: 10,
        (*step, "x = torch.tensor(frames)", "tensor()"): 600,
        (*step, line, "module Net_0", "aten::mm"): 340,
        (*step, line, "module Net_0", "aten::mm", "gemm"): 50,
    }
    assert stacks(written(), 1) == {(*step, line, "module Net_0", "aten::mm", "gemm"): 50}


def test_functions_and_lines_stand_in_their_file_and_operations_in_none():
    frames = {one["name"]: one for one in written()["shared"]["frames"]}
    assert frames["step"] == {"name": "step", "file": "a/sick.py", "line": 6}
    assert frames["net(x).backward()"] == {"name": "net(x).backward()", "file": "a/sick.py", "line": 8}
    assert frames["aten::mm"] == {"name": "aten::mm"}


def test_one_frame_is_one_entry_wherever_it_is_called():
    places = nodes(
        (None, "program", "the step", None, 1.0, 0, {}),
        (0, "module", "A", None, 1.0, 0, {}),
        (0, "module", "B", None, 1.0, 0, {}),
        (1, "op", "aten::mm", None, 1.0, 0, {"launching": 3}),
        (2, "op", "aten::mm", None, 1.0, 0, {"launching": 4}),
    )
    document = written(places)
    assert [one["name"] for one in document["shared"]["frames"]].count("aten::mm") == 1
    assert [one["name"] for one in document["profiles"]] == ["the step"]  # no device worked
    assert document["profiles"][0]["samples"] == [[0, 1, 2], [0, 3, 2]]  # what is within a place is right behind it


def test_the_weights_of_a_recorded_step_sum_to_it():
    one = diagnosis(H100 / "mlp_tiny.faulty.json.gz")
    document = valid(to_speedscope(one))
    for profile, whole in zip(document["profiles"], (one.places[0].step_ns, one.places[0].device_ns), strict=True):
        assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "nanoseconds", 0)
        assert sum(profile["weights"]) == profile["endValue"] == whole


def test_a_name_that_is_no_text_is_written_all_the_same():
    odd = nodes((None, "program", "the step", None, 1.0, 0, {}), (0, "op", "a\udc80\x1b[31mb", None, 1.0, 7, {}))
    assert len(stacks(written(odd), 0)) == 1


def test_the_command_writes_it_after_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved, out = tmp_path / "answer.json", tmp_path / "places.json"
    save_diagnosis(samples.diagnosis(places=BUILDING, held_by=3), saved)
    assert cli.main(["report", str(saved), "--speedscope", str(out)]) == 0
    assert json.loads(out.read_bytes())["profiles"][0]["endValue"] == 1000
    assert "held by" in capsys.readouterr().out
    assert cli.main(["report", str(saved), "--speedscope", str(saved)]) == 2
    assert "overwritten" in capsys.readouterr().err


def test_without_places_one_line_says_so_behind_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved, out = tmp_path / "answer.json", tmp_path / "places.json"
    save_diagnosis(samples.diagnosis(), saved)
    assert cli.main(["report", str(saved), "--speedscope", str(out)]) == 2
    told = capsys.readouterr()
    assert "OVERHEAD-BOUND" in told.out
    assert len(told.err.splitlines()) == 1
    assert "not written" in told.err
    assert not out.exists()
    with pytest.raises(UsageError, match="does not know in which places"):
        to_speedscope(samples.diagnosis())
