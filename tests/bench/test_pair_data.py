"""The pairs that predictions are held against: all are found, named by treatments that exist, with sane times."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.pair_data import COMPILED, HANDED, HELD_OUT, RANKS, Pair, further, pairs, rank_files
from gobrrr.treatments import catalogue
from tests.conftest import H100, H100_EXTRA


@pytest.fixture(scope="module")
def found() -> dict[str, Pair]:
    return {one.name: one for one in pairs()}


def timing(sync_ms: float, pipelined_ms: float, **more: Any) -> dict[str, Any]:
    return {"sync_ms": sync_ms, "sync_low_ms": 0.1, "sync_high_ms": 99.0, "pipelined_ms": pipelined_ms, **more}


def entry(faulty: dict[str, Any], fixed: dict[str, Any], **more: Any) -> dict[str, Any]:
    about = {"regime": "overhead", "treatments": ["cuda-graph"], "negative": False, "fixed_work": 1.0}
    return {**about, "faulty": faulty, "fixed": fixed, **more}


def recorded(folder: Path, files: list[str], **entries: dict[str, Any]) -> list[Pair]:
    """The pairs of a record in `folder`, beside empty files of these names."""
    for name in files:
        (folder / name).touch()
    record = folder / "pairs.json"
    record.write_text(json.dumps({"device": "round", "pairs": entries}), encoding="utf-8")
    return list(further(record, folder))


def test_each_group_is_there(found: dict[str, Pair]) -> None:
    groups = Counter(one.group for one in found.values())
    assert groups["handed"] == len(HANDED) == 7
    assert groups["labels"] == len(COMPILED)
    assert groups["ddp"] == len(RANKS) + 1  # and the pair of two H200
    assert groups["holdout"] == len(HELD_OUT)


def test_names_differ() -> None:
    assert len({one.name for one in pairs()}) == len(list(pairs()))


def test_traces_are_at_hand(found: dict[str, Pair]) -> None:
    for one in found.values():
        assert one.faulty.is_file(), one.name
        assert one.fixed is None or one.fixed.is_file(), one.name
        assert all(path.is_file() for path in one.other_ranks), one.name


def test_treatments_are_in_the_catalogue(found: dict[str, Pair]) -> None:
    known = {one.name for one in catalogue()}
    for one in found.values():
        assert one.treatments, one.name
        assert {name.partition("=")[0] for name in one.treatments} <= known, one.name


def test_times_are_intervals_and_the_fix_is_faster_unless_negative(found: dict[str, Pair]) -> None:
    for one in found.values():
        assert 0 < one.faulty_ms[0] <= one.faulty_ms[1], one.name
        assert 0 < one.fixed_ms[0] <= one.fixed_ms[1], one.name
        if one.group != "further" and not one.negative:
            assert one.fixed_ms[1] < one.faulty_ms[0], one.name


def test_handed_times_are_those_of_the_record(found: dict[str, Pair]) -> None:
    one = found["moe_host_loop"]
    assert (one.faulty_ms, one.fixed_ms) == ((6.754, 7.657), (0.791, 0.955))
    assert one.faulty == H100 / "moe_host_loop.faulty.json.gz"
    assert (one.regime, one.treatments) == ("overhead", ("grouped-matmul",))


def test_labels_say_where_compiling_gave_nothing(found: dict[str, Pair]) -> None:
    assert found["bert_base_b32_s512.compile"].fixed_ms == (19.359, 20.405)
    assert found["bert_base_b32_s512.compile"].negative
    assert not found["vit_b16_b64.compile"].negative


def test_held_out_times_span_both_rounds(found: dict[str, Pair]) -> None:
    low, high = found["loader_workers_0"].faulty_ms
    assert (low, high) == pytest.approx((117.026, 124.177), abs=1e-3)


def test_ranks_are_a_step_each_and_their_times_span_all_ranks(found: dict[str, Pair]) -> None:
    one = found["ddp_manual_after"]
    assert one.faulty == H100_EXTRA / "ddp_manual_after.rank0.json.gz"
    assert [path.name for path in one.other_ranks] == ["ddp_manual_after.rank1.json.gz"]
    assert (one.faulty_ms, one.fixed_ms) == ((33.75, 35.47), (25.68, 26.3))


def test_ranks_are_sorted_as_numbers(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        (tmp_path / f"step.rank{rank}.json.gz").touch()
    (tmp_path / "step_more.rank0.json.gz").touch()
    assert [path.name for path in rank_files(tmp_path, "step")] == [f"step.rank{n}.json.gz" for n in (0, 2, 10)]


def test_a_missing_record_is_no_pair(tmp_path: Path) -> None:
    assert list(further(tmp_path / "pairs.json", tmp_path)) == []


def test_a_recorded_pair_spans_both_rounds_but_not_the_quartiles(tmp_path: Path) -> None:
    (one,) = recorded(
        tmp_path,
        ["a.faulty.json.gz", "a.fixed.json.gz"],
        a=entry(
            timing(5.0, 4.0, again=timing(6.0, 4.5), trace="a.faulty.json.gz"),
            timing(2.0, 1.5, again=timing(1.0, 1.25), trace="a.fixed.json.gz"),
        ),
    )
    assert (one.faulty_ms, one.fixed_ms) == ((4.0, 6.0), (1.0, 2.0))
    assert (one.faulty, one.fixed) == (tmp_path / "a.faulty.json.gz", tmp_path / "a.fixed.json.gz")
    assert (one.group, one.treatments, one.regime) == ("further", ("cuda-graph",), "overhead")


def test_more_work_in_the_fixed_step_counts_for_as_much_as_the_faulty_one_does(tmp_path: Path) -> None:
    (one,) = recorded(
        tmp_path,
        ["a.faulty.json.gz"],
        a=entry(timing(5.0, 4.0, trace="a.faulty.json.gz"), timing(8.0, 6.0, trace="a.fixed.json.gz"), fixed_work=4.0),
    )
    assert one.fixed_ms == (1.5, 2.0)
    assert one.fixed is None


def test_failed_and_skipped_pairs_and_those_without_a_trace_are_left_out(tmp_path: Path) -> None:
    whole = entry(timing(5.0, 4.0, trace="b.faulty.json.gz"), timing(2.0, 1.0, trace="b.fixed.json.gz"))
    about = {"regime": "compute", "treatments": ["tf32"], "negative": False, "fixed_work": 1.0}
    found = recorded(tmp_path, [], a={**about, "error": "OutOfMemoryError"}, b=whole, c={**about, "skipped": "no GPU"})
    assert found == []


def test_a_recorded_pair_of_ranks(tmp_path: Path) -> None:
    files = [f"a.{form}.rank{rank}.json.gz" for form in ("faulty", "fixed") for rank in (0, 1)]
    forms = {
        form: {"ranks": [timing(ms + rank, ms, trace=f"a.{form}.rank{rank}.json.gz") for rank in (0, 1)]}
        for form, ms in (("faulty", 5.0), ("fixed", 3.0))
    }
    (one,) = recorded(tmp_path, files, a=entry(forms["faulty"], forms["fixed"]))
    assert (one.faulty_ms, one.fixed_ms) == ((5.0, 6.0), (3.0, 4.0))
    assert (one.faulty.name, [path.name for path in one.other_ranks]) == (files[0], [files[1]])
    assert one.fixed == tmp_path / "a.fixed.rank0.json.gz"


@pytest.mark.torch
@pytest.mark.filterwarnings("default")
def test_the_recipes_name_conditions_and_treatments_that_exist() -> None:
    pytest.importorskip("torch")
    from bench.gpu.pairs import RECIPES
    from gobrrr.conditions import catalogue as conditions

    codes, treatments = ({one.code for one in conditions()}, {one.name for one in catalogue()})
    assert len({one.name for one in RECIPES}) == len(RECIPES) >= 18
    assert {one.regime for one in RECIPES} == {
        "compute", "memory", "overhead", "communication", "transfer", "input",
    }  # fmt: skip
    for one in RECIPES:
        assert set(one.codes) <= codes, one.name
        assert one.treatments, one.name
        assert set(one.treatments) <= treatments, one.name
        assert one.codes or one.negative, one.name


@pytest.mark.torch
@pytest.mark.filterwarnings("default")
def test_a_recipe_is_measured_and_its_record_read_back(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from bench.gpu.pairs import run
    from bench.gpu.pairs_form import Setting

    report = run(tmp_path, Setting("cpu", tiny=True), ["expert_loop", "small_batch_graph"], 60.0)
    assert "GPU" in report["pairs"]["small_batch_graph"]["skipped"]
    (one,) = further(tmp_path / "pairs.json", tmp_path / "traces")
    assert one.name == "expert_loop"
    assert one.fixed is not None
    assert one.fixed.is_file()
    assert 0 < one.faulty_ms[0] <= one.faulty_ms[1]
