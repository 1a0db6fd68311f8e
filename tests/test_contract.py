"""Every diagnosis is what docs/design.md, section 9, promises to other programs: names, types, sums."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench.stored_profile import unpack
from gobrrr.api import load, save
from gobrrr.doors.pipeline import diagnose
from gobrrr.report.json import to_json
from tests.analysis.tables import DDP, HOLDOUT, PUBLIC, SHIPPED, diagnosis, short
from tests.conftest import ROOT
from tests.spread import slow, spread

CHECKER = ROOT.parent / "shared" / "tools" / "check_contract.py"
EVERY = [*SHIPPED, *DDP, *HOLDOUT, *PUBLIC]
PAIRS = sorted({path.name.split(".")[0] for path in DDP})

NUMBER = (int, float)
NONE = type(None)
REGIMES = {"compute", "memory", "overhead", "communication", "transfer", "input", "mixed", "unknown"}
LINES = {"compute", "memory", "below_roof", "unpriced", "communication", "transfer", "overhead"}
KINDS = {"program", "module", "function", "line", "call", "op", "annotation", "driver", "kernel", "input", "unknown"}
CERTAINTY = {"high", "medium", "low"}
THROUGHPUT = {"larger-batch"}
"""They make a step do more work and no shorter: ranked behind the others."""
Shape = dict[str, Any]
"""A name's type, types, set of values, [what each item is], or the shape of an object within."""
CONTRACT: Shape = {
    "format": {1},
    "target": str,
    "origin": {"trace", "live", "static"},
    "device": (str, NONE),
    "ranks": int,
    "steps": int,
    "wall_ns": NUMBER,
    "unprofiled_wall_ns": {
        "value": (*NUMBER, NONE), "low": (*NUMBER, NONE), "high": (*NUMBER, NONE),
        "how": {"measured", "estimated", "unknown"},
    },
    "devices": [{"rank": int, "device": int, "busy_total_ns": int, "span_total_ns": int, "kernels": int}],
    "regime": REGIMES,
    "certainty": CERTAINTY,
    "budget": [{"line": LINES, "cause": (str, NONE), "ns": NUMBER, "share": NUMBER}],
    "speed_of_light_ns": (*NUMBER, NONE),
    "coverage": {"device_time": (*NUMBER, NONE), "calls": (*NUMBER, NONE), "bytes": (*NUMBER, NONE)},
    "totals": {
        "flop": (*NUMBER, NONE), "bytes_as_run": (*NUMBER, NONE), "bytes_fused": (*NUMBER, NONE),
        "launches": (*NUMBER, NONE), "syncs": (*NUMBER, NONE),
    },
    "findings": [
        {
            "code": str, "title": str, "where": [{"op": (str, NONE), "module": (str, NONE), "source": (str, NONE)}],
            "at_stake_ns": [NUMBER], "certainty": CERTAINTY, "treatments": [str],
        }
    ],
    "not_checked": [{"code": str, "needs": str}],
    "prescriptions": [{"treatment": str, "finding": str, "predicted_saving_ns": [NUMBER], "how": str,
                       "expected_ns": (*NUMBER, NONE), "mends": [str], "mends_ns": [NUMBER]}],
    "trials": [
        {
            "treatment": str, "before_ns": (*NUMBER, NONE), "after_ns": (*NUMBER, NONE),
            "spread_ns": (*NUMBER, NONE), "predicted_saving_ns": (list, NONE), "numerics": dict, "why": str,
            "verdict": {"helped", "no_change", "hurt", "unsafe", "inconclusive"},
        }
    ],
    "notes": [str],
    "places": [
        {
            "id": int, "parent": (int, NONE), "kind": KINDS, "name": str, "source": (str, NONE),
            "calls": (*NUMBER, NONE), "step_ns": int, "own_ns": int, "device_ns": int, "host_ns": dict,
            "backward_ns": int, "gone_ns": (*NUMBER, NONE), "merged": int,
        }
    ],
    "held_by": (int, NONE),
    "places_from": str,
}  # fmt: skip


def misfits(value: Any, shape: Any, at: str = "") -> list[str]:
    """Where a JSON value is not of the shape."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{at}: not an object"]
        missing = [f"{at}.{key}: missing" for key in shape if key not in value]
        inside = [misfits(value[key], inner, f"{at}.{key}") for key, inner in shape.items() if key in value]
        return missing + [fault for part in inside for fault in part]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{at}: not a list"]
        return [fault for index, item in enumerate(value) for fault in misfits(item, shape[0], f"{at}[{index}]")]
    if isinstance(shape, set):
        return [] if value in shape else [f"{at}: {value!r}"]
    fits = isinstance(value, shape) and not isinstance(value, bool)
    return [] if fits else [f"{at}: {value!r} is no {shape}"]


def expected(prescription: dict[str, Any]) -> float:
    """What a prescription is ranked by; the middle of its interval where the step can't be replayed."""
    given = prescription["expected_ns"]
    return sum(prescription["predicted_saving_ns"]) / 2 if given is None else given


def strange(prescription: dict[str, Any]) -> bool:
    """Whether it expects something outside its interval."""
    low, high = prescription["predicted_saving_ns"]
    return not low <= expected(prescription) <= high


def remedied(one: dict[str, Any], code: str) -> float:
    """What the best remedy of a finding is expected to save; those of throughput make no step shorter."""
    given = [each for each in one["prescriptions"] if each["treatment"] not in THROUGHPUT]
    saved = [ns for each in given for own, ns in zip(each["mends"], each["mends_ns"], strict=False) if own == code]
    return max(saved, default=0.0)


def unequal(one: dict[str, Any]) -> list[str]:
    """What does not add up."""
    wall, faults = one["unprofiled_wall_ns"], []
    if wall["how"] == "unknown":
        whole = one["wall_ns"]
    else:
        whole = wall["value"]
        if not wall["low"] <= wall["value"] <= wall["high"]:
            faults.append("the interval does not hold its value")
    if abs(sum(line["ns"] for line in one["budget"]) - whole) > max(2, 1e-6 * whole):
        faults.append("the budget does not sum to the wall")
    if one["budget"] and abs(sum(line["share"] for line in one["budget"]) - 1) > 1e-6:
        faults.append("the shares do not sum to 1")
    if any(line["ns"] < 0 for line in one["budget"]):
        faults.append("a line is negative")
    if len({(line["line"], line["cause"]) for line in one["budget"]}) < len(one["budget"]):
        faults.append("a line stands twice")
    faults += [
        f"device {each['device']}: busy over span"
        for each in one["devices"]
        if each["busy_total_ns"] > each["span_total_ns"]
    ]
    faults += [
        f"coverage {name}" for name, share in one["coverage"].items() if share is not None and not 0 <= share <= 1
    ]
    intervals = [each["at_stake_ns"] for each in one["findings"]]
    intervals += [each["predicted_saving_ns"] for each in one["prescriptions"]]
    faults += [
        f"interval {pair}" for pair in intervals if len(pair) != 2 or not 0 <= pair[0] <= pair[1] <= whole * 1.001
    ]
    if sum(each["at_stake_ns"][0] for each in one["findings"]) > whole * 1.001:
        faults.append("the findings have more at stake than the step")
    ranks = [(-remedied(one, each["code"]), -each["at_stake_ns"][1]) for each in one["findings"]]
    if ranks != sorted(ranks):
        faults.append("the findings are not ranked")
    faults += [
        f"expected of {each['treatment']} outside its interval" for each in one["prescriptions"] if strange(each)
    ]
    savings = [(each["treatment"] in THROUGHPUT, -expected(each)) for each in one["prescriptions"]]
    if savings != sorted(savings):
        faults.append("the prescriptions are not ranked")
    codes = {each["code"] for each in one["findings"]}
    faults += [f"prescription for {each['finding']}" for each in one["prescriptions"] if each["finding"] not in codes]
    faults += [f"{each['code']} is found and not checked" for each in one["not_checked"] if each["code"] in codes]
    if one["speed_of_light_ns"] is not None and one["speed_of_light_ns"] > whole * 1.001:
        faults.append("faster than light")
    return faults + misplaced(one, whole) + more_than_held(one)


def more_than_held(one: dict[str, Any]) -> list[str]:
    """A step whose only finding is that launching bounds it, and that a line of the program holds: some saving is
    certain, and no remedy for launching begins above what that line can lose."""
    codes = {each["code"] for each in one["findings"] if not each["code"].startswith("Q")}
    held = one["places"][one["held_by"]] if one["held_by"] is not None else None
    if held is None or held["kind"] != "line" or codes != {"O01"}:
        return []
    can = max(held["step_ns"], held["gone_ns"] or 0)
    if any(each["code"] == "O01" and each["at_stake_ns"][0] <= 0 for each in one["findings"]):
        return [f"launching alone is told of {held['name']}, and no saving is certain"]
    return [
        f"{each['treatment']} begins above what {held['name']} can lose"
        for each in one["prescriptions"]
        if each["finding"] == "O01" and each["predicted_saving_ns"][0] > can + 1
    ]


def leads(places: list[dict[str, Any]], held: dict[str, Any], whole: float) -> bool:
    """Whether a place is an operation of a step without functions, with 5 % of it more than any other beside it has."""
    beside = [each["step_ns"] for each in places if each["parent"] == held["parent"] and each["id"] != held["id"]]
    known = any(each["kind"] in ("function", "line") for each in places)
    most = max([places[held["parent"]]["own_ns"], *beside])
    return held["kind"] == "op" and not known and held["step_ns"] - most >= 0.05 * whole - 2


def misplaced(one: dict[str, Any], whole: float) -> list[str]:
    """What is wrong with the tree of places: each nanosecond of the step is at one of them."""
    places, within = one["places"], defaultdict(int)
    if not places:
        return [] if one["held_by"] is None else ["held by no place"]
    faults = [f"place {each['id']} is number {at}" for at, each in enumerate(places) if each["id"] != at]
    for each in places[1:]:
        within[each["parent"]] += each["step_ns"]
        if not 0 <= each["parent"] < each["id"]:
            faults.append(f"place {each['id']} stands before its parent")
    for each in places:
        if each["own_ns"] + within[each["id"]] != each["step_ns"] or each["own_ns"] < 0:
            faults.append(f"place {each['id']} and those within it do not sum")
        if each["device_ns"] + sum(each["host_ns"].values()) != each["step_ns"]:
            faults.append(f"place {each['id']}: device and host do not sum")
        if not 0 <= each["backward_ns"] <= each["step_ns"]:
            faults.append(f"place {each['id']}: the backward pass is longer")
        if each["gone_ns"] is not None and not 0 <= each["gone_ns"] <= whole * 1.001:
            faults.append(f"place {each['id']}: more is gone than there is")
    root, held = places[0], places[one["held_by"]]
    if root["parent"] is not None or abs(root["step_ns"] - whole) > 1:
        faults.append("the program does not have the whole step")
    deeper = [each for each in places if each["parent"] == held["id"] and each["kind"] != "kernel"]
    most = held["step_ns"] > whole / 2 - 1 or leads(places, held, whole)
    if not most or any(each["step_ns"] > whole / 2 + 1 for each in deeper):
        faults.append("it is not the deepest place with most of the step")
    return faults + [
        f"{each['code']} is about no place"
        for each in one["findings"]
        if each["place"] not in range(len(places)) and not each["code"].startswith("Q")  # those are about the recording
    ]


def refused(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def as_json(path: Path) -> dict[str, Any]:
    """What `--json` prints; NaN and Infinity are no JSON."""
    return json.loads(to_json(diagnosis(path)), parse_constant=refused)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of both ranks for each DDP run."""
    top = tmp_path_factory.mktemp("ranks")
    for path in DDP:
        folder = top / path.name.split(".")[0]
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder)
    return {name: top / name for name in PAIRS}


@pytest.mark.parametrize("path", spread(EVERY), ids=short)
def test_names_and_types(path: Path):
    assert misfits(as_json(path), CONTRACT) == []


@pytest.mark.parametrize("path", spread(EVERY), ids=short)
def test_sums(path: Path):
    assert unequal(as_json(path)) == []


@pytest.mark.parametrize("path", spread(EVERY), ids=short)
def test_it_survives_a_file(path: Path, tmp_path: Path):
    save(diagnosis(path), tmp_path / "saved.json")
    assert load(tmp_path / "saved.json") == diagnosis(path)


@pytest.mark.parametrize("name", [slow(name) if name.startswith("ddp_accum") else name for name in PAIRS])
def test_a_folder_of_two_ranks(name: str, pairs: dict[str, Path], tmp_path: Path):
    found = as_json(pairs[name])
    assert misfits(found, CONTRACT) == []
    assert unequal(found) == []
    assert found["ranks"] == 2
    assert sorted((each["rank"], each["device"]) for each in found["devices"]) == [(0, 0), (1, 1)]
    save(diagnosis(pairs[name]), tmp_path / "saved.json")
    assert load(tmp_path / "saved.json") == diagnosis(pairs[name])


@cache
def checker() -> Any:
    spec = importlib.util.spec_from_file_location("check_contract", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not CHECKER.is_file(), reason="the other checker is not beside this checkout")
@pytest.mark.parametrize("path", spread(EVERY), ids=short)
def test_the_other_checker_agrees(path: Path):
    assert checker().faults(as_json(path)) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"regime": "fast"}, ".regime"),
        ({"steps": 1.5}, ".steps"),
        ({"steps": True}, ".steps"),
        ({"device": 3}, ".device"),
        ({"notes": ["a", 1]}, ".notes[1]"),
        ({"coverage": {"calls": 1.0, "bytes": 1.0}}, ".coverage.device_time"),
    ],
)
def test_the_check_finds_what_is_wrong(change: dict[str, Any], fault: str):
    (found,) = misfits({**as_json(SHIPPED[0]), **change}, CONTRACT)
    assert found.startswith(fault)


def test_the_check_finds_what_does_not_add_up():
    good = as_json(SHIPPED[0])
    longer = {**good["budget"][0], "ns": good["budget"][0]["ns"] + 1e6}
    assert unequal(good) == []
    assert unequal({**good, "budget": [longer, *good["budget"][1:]]}) == ["the budget does not sum to the wall"]
    place = good["places"][1]
    longer = {**place, "own_ns": place["own_ns"] + 1}
    assert unequal({**good, "places": [good["places"][0], longer, *good["places"][2:]]}) == [
        "place 1 and those within it do not sum"
    ]


LIVE = sorted((ROOT / "bench/results").glob("treatments_*/*.profile.xz"))
QUICK = ("cpu_bert_serve_one",)
"""A step that a line holds, of which no more could be told than that operations are dispatched."""


@pytest.mark.parametrize(
    "path",
    [pytest.param(one, marks=[] if one.name.split(".")[0] in QUICK else [pytest.mark.slow]) for one in LIVE],
    ids=lambda one: one.name.split(".")[0],
)
def test_a_live_run_is_told_no_more_than_its_place_can_lose(path: Path):
    made = json.loads(to_json(diagnose(unpack(path.read_bytes()))))
    assert more_than_held(made) == []
    if path.name.split(".")[0] in QUICK:
        assert made["places"][made["held_by"]]["kind"] == "line"
        assert made["findings"] == []
        told, remedy = {"code": "O01"}, {"treatment": "compile", "finding": "O01", "predicted_saving_ns": [1e12, 1e12]}
        for low, fault in ((0.0, "no saving is certain"), (1.0, "begins above")):
            alone = {**made, "findings": [{**told, "at_stake_ns": [low, 2.0]}], "prescriptions": [remedy]}
            assert fault in more_than_held(alone)[0]


def test_a_file_from_before_there_were_places_has_none(tmp_path: Path):
    before = {key: value for key, value in as_json(SHIPPED[0]).items() if key not in ("places", "held_by")}
    for one in before["findings"]:
        del one["place"]
    del before["timeline"]["host"]
    (tmp_path / "old.json").write_text(json.dumps(before), encoding="utf-8")
    old = load(tmp_path / "old.json")
    assert (old.places, old.held_by, {one.place for one in old.findings}) == ([], None, {None})
