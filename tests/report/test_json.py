from __future__ import annotations

import importlib.util
import json as stdlib_json
import math
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

from gobrrr.errors import InputError, UsageError
from gobrrr.model.diagnosis import BudgetLine
from gobrrr.report import json
from gobrrr.system import files
from tests.report import samples

EVERY = pytest.mark.parametrize("name", list(samples.ALL))

# docs/design.md, section 9: the names that other programs hold on to.
CONTRACT: dict[str, set[str]] = {
    "": {
        "format", "target", "origin", "device", "ranks", "steps", "wall_ns", "unprofiled_wall_ns", "devices", "regime",
        "certainty", "budget", "speed_of_light_ns", "coverage", "totals", "findings", "not_checked", "prescriptions",
        "trials", "notes",
    },
    "unprofiled_wall_ns": {"value", "low", "high", "how"},
    "devices": {"rank", "device", "busy_total_ns", "span_total_ns", "kernels"},
    "budget": {"line", "cause", "ns", "share"},
    "coverage": {"device_time", "calls", "bytes"},
    "totals": {"flop", "bytes_as_run", "bytes_fused", "launches", "syncs"},
    "findings": {"code", "title", "where", "at_stake_ns", "certainty", "treatments"},
    "not_checked": {"code", "needs"},
    "prescriptions": {"treatment", "finding", "predicted_saving_ns", "how"},
    "trials": {"treatment", "before_ns", "after_ns", "spread_ns", "predicted_saving_ns", "numerics", "verdict"},
}  # fmt: skip


def strict(data: bytes) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    found = stdlib_json.loads(data, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def test_every_name_of_the_contract_is_there() -> None:
    found = strict(json.to_json(samples.compute()))
    assert set(found) >= CONTRACT[""]
    for key, names in list(CONTRACT.items())[1:]:
        value = found[key]
        for record in value if isinstance(value, list) else [value]:
            assert set(record) >= names, key
    assert set(found["findings"][0]["where"][0]) >= {"op", "module", "source"}


@EVERY
def test_the_contract_checker_agrees(name: str, root: Path) -> None:
    path = root.parent / "shared" / "tools" / "check_contract.py"
    if not path.is_file():
        pytest.skip("the contract checker is not beside this checkout")
    assert _load(path).faults(strict(json.to_json(samples.ALL[name]()))) == []


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_contract", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@EVERY
def test_what_is_saved_is_what_is_loaded(name: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    diagnosis = samples.ALL[name]()
    json.save(diagnosis, path)
    loaded = json.load(path)
    assert json.to_json(loaded) == path.read_bytes()
    if name != "hostile":  # a lone surrogate can't be saved; it becomes "?"
        assert loaded == diagnosis


def test_the_text_is_indented_and_keeps_the_records_order() -> None:
    lines = json.to_json(samples.overhead()).decode().splitlines()
    assert lines[:3] == ["{", '  "format": 1,', '  "target": "runs/2024-05-01/train_step.json.gz",']
    assert json.to_json(samples.overhead()) == json.to_json(samples.overhead())


def test_numpy_numbers_are_numbers() -> None:
    diagnosis = samples.diagnosis(steps=np.int64(3), wall_ns=np.float64(1.5))
    found = strict(json.to_json(diagnosis))
    assert (found["steps"], found["wall_ns"]) == (3, 1.5)


def test_not_a_number_is_null_where_unknown_is_allowed() -> None:
    assert strict(json.to_json(samples.diagnosis(speed_of_light_ns=math.nan)))["speed_of_light_ns"] is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_a_number_is_refused_where_it_must_be_one(value: float) -> None:
    line = BudgetLine(line="compute", cause=None, ns=value, share=1.0)
    with pytest.raises(ValueError, match=r"budget\[0\]\.ns"):
        json.to_json(samples.diagnosis(budget=[line]))


def test_more_names_beside_the_contract_are_no_error() -> None:
    data = strict(json.to_json(samples.overhead())) | {"new_in_a_later_version": 1}
    assert json.decode(stdlib_json.dumps(data).encode()) == samples.overhead()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a saved diagnosis"),
        (b"hello", "not a saved diagnosis"),
        (b"[1, 2]", "not a saved diagnosis"),
        (b"\xff\xfe\x00", "not a saved diagnosis"),
        (b"\x1f\x8b\x08\x00", "a profiler trace is read with: gobrrr diagnose"),
        (b"[" * 100_000, "not a saved diagnosis"),
        (b"{}", "no format and regime in it"),
        (b'{"format": "1", "regime": "compute"}', "no format and regime in it"),
        (b'{"traceEvents": []}', "a profiler trace, not a saved diagnosis"),
        (b'{"format": 2, "regime": "compute"}', "format 2, but this version of gobrrr reads 1: update gobrrr"),
        (b'{"format": 0, "regime": "compute"}', "format 0 does not exist"),
        (b'{"format": 1, "regime": "compute"}', "a damaged diagnosis: Object missing required field"),
        (b'{"format": 1, "regime": "warp", "target": "x", "origin": "trace"}', "a damaged diagnosis"),
    ],
)
def test_anything_else_is_refused_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        json.load(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    data = json.to_json(samples.overhead())
    for cut in range(0, len(data) - 2, 97):
        with pytest.raises(InputError):
            json.decode(data[:cut])


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        json.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="can't be read"):
        json.load(tmp_path)


def test_a_path_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none" / "x.json", "does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(UsageError, match=message):
            files.check_writable(path)
        with pytest.raises(UsageError, match=message):
            json.save(samples.overhead(), path)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UsageError, match="No space left on device"):
        json.save(samples.overhead(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_home_folder_is_in_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/ada")
    one = msgspec.structs.replace(
        samples.overhead(),
        target="/data/people/ada/runs/t.json",
        notes=["/home/bob/model.py(12): forward", "/data/people/ada"],
    )
    saved = json.decode(json.to_json(one))
    assert saved.target == "~/runs/t.json"
    assert saved.notes == ["~/model.py(12): forward", "~"]
