"""The exhaustive trials: which combinations are tried and in what order, and that they go on where a process ended."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from bench.gpu import treat_exhaustive
from bench.gpu.treat_exhaustive import Trials, at_odds, chosen, combinations, together
from gobrrr.model.workload import Workload
from gobrrr.treating.pace import Allowed
from gobrrr.treatments.way import Way

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

GIVES = {"tf32": 0.7, "compile": 0.5, "compile:regional": 0.6, "compile:max": 0.55, "fused": 0.9, "layout": 1.2}
WORK = Workload(step=lambda: None, name="nothing")


def way(name: str, rank: int = 0, *, log: list[str] | None = None, **more: Any) -> Way:
    @contextlib.contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        kept["entered"] = kept.get("entered", 0) + 1
        if log is not None:
            log.append(name)
        yield workload

    return Way(name=name, treatment=name.partition(":")[0], apply=apply, code="", numerics="none", rank=rank, **more)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> dict[str, Way]:
    """Ways that fit, whose trials give what GIVES says and multiply."""
    found = {name: way(name) for name in GIVES}

    def run(workload: Workload, kept: Any, one: Way, *, allowed: Allowed) -> Any:
        ratio = 1.0
        for name in one.name.split(" + "):
            ratio *= GIVES[name]
        timing = SimpleNamespace(before_ns=1e6, after_ns=1e6 * ratio)
        return SimpleNamespace(verdict="helped" if ratio < 1 else "hurt", why="", unapplied=False, timing=timing)

    monkeypatch.setattr(treat_exhaustive, "run_trial", run)
    monkeypatch.setattr(treat_exhaustive, "tidy", lambda: None)  # of memory, which takes half a second each time
    monkeypatch.setattr(treat_exhaustive, "fitting", lambda workload: (found, {"fp8": "torchao is not installed"}))
    return found


def trials(folder: Path, earlier: dict[str, Any] | None = None, seconds: float = 600.0) -> Trials:
    found = Trials(lambda: WORK, folder / "part.json", earlier or {}, seconds)
    found.all()
    return found


def test_ways_of_one_treatment_and_those_that_name_each_other_are_at_odds():
    graph = way("cuda-graph", conflicts=frozenset({"compile"}))
    assert at_odds(way("compile"), way("compile:regional"))
    assert at_odds(way("compile:regional"), graph)
    assert at_odds(graph, way("compile"))
    assert not at_odds(graph, way("tf32"))


def test_the_best_are_combined_and_no_more_than_two_of_a_treatment(ways: dict[str, Way]):
    singles = {name: share for name, share in GIVES.items() if share < 1}
    assert chosen(singles, ways) == ["compile", "compile:max", "tf32", "fused"]
    sets = combinations(chosen(singles, ways), singles, ways)
    assert sets[0] == ("compile", "tf32", "fused")
    assert not any({"compile", "compile:max"} <= set(one) for one in sets)
    assert len(sets) == 7


def test_several_ways_are_entered_as_one_by_their_ranks_with_what_each_keeps():
    log: list[str] = []
    stack = together([way("outer", 50, log=log, work=2.0), way("inner", 0, log=log)])
    kept: dict[str, Any] = {}
    for _ in range(2):
        with stack.apply(WORK, kept) as treated:
            assert treated is WORK
    assert log == ["inner", "outer"] * 2
    assert kept == {"inner": {"entered": 2}, "outer": {"entered": 2}}
    assert stack.work == 2.0
    assert stack.name == "inner + outer"


def test_every_way_is_tried_alone_then_what_helped_together(ways: dict[str, Way], tmp_path: Path):
    found = trials(tmp_path).found
    assert [one["ways"] for one in found["trials"][:6]] == [[name] for name in GIVES]
    assert len(found["trials"]) == 6 + 7
    assert found["best"] == ["compile", "tf32", "fused"]
    assert found["unfit"] == {"fp8": "torchao is not installed"}
    assert json.loads((tmp_path / "part.json").read_text())["best"] == found["best"]


def test_what_an_earlier_process_measured_is_not_measured_again_and_what_ended_it_is_skipped(
    ways: dict[str, Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = trials(tmp_path).found
    earlier = {"trials": first["trials"][:3], "begun": ["compile:max"]}
    asked: list[str] = []
    run = treat_exhaustive.run_trial

    def noting(workload: Workload, kept: Any, one: Way, **more: Any) -> Any:
        asked.append(one.name)
        return run(workload, kept, one, **more)

    monkeypatch.setattr(treat_exhaustive, "run_trial", noting)
    found = trials(tmp_path, earlier).found
    assert asked[:2] == ["fused", "layout"]
    assert "compile:max" not in asked
    lost = next(one for one in found["trials"] if one["ways"] == ["compile:max"])
    assert lost["verdict"] == "inconclusive"
    assert "begun" not in found


def test_what_there_was_no_time_for_is_listed(ways: dict[str, Way], tmp_path: Path):
    found = trials(tmp_path, seconds=0.0).found
    assert found["trials"] == []
    assert found["left"] == [[name] for name in GIVES]
    assert found["best"] == []


def test_a_trial_that_raises_is_inconclusive_and_the_others_go_on(
    ways: dict[str, Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = treat_exhaustive.run_trial

    def failing(workload: Workload, kept: Any, one: Way, **more: Any) -> Any:
        if one.name == "tf32":
            raise RuntimeError("no such thing")
        return run(workload, kept, one, **more)

    monkeypatch.setattr(treat_exhaustive, "run_trial", failing)
    found = trials(tmp_path).found
    assert next(one for one in found["trials"] if one["ways"] == ["tf32"])["why"] == "RuntimeError: no such thing"
    assert found["best"] == ["compile", "fused"]


def test_what_turns_out_not_to_apply_is_unfit_and_asked_once(
    ways: dict[str, Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    quick, asked = treat_exhaustive.run_trial, []

    def run(workload: Workload, kept: Any, one: Way, **more: Any) -> Any:
        asked.append(one.name)
        if one.name == "tf32":
            why = "tf32 can't be applied: the step fails with it"
            return SimpleNamespace(verdict="inconclusive", why=why, unapplied=True, timing=None)
        return quick(workload, kept, one, **more)

    monkeypatch.setattr(treat_exhaustive, "run_trial", run)
    found = trials(tmp_path).found
    assert asked.count("tf32") == 1
    assert found["unfit"]["tf32"] == "tf32 can't be applied: the step fails with it"
    assert not any("tf32" in one["ways"] for one in found["trials"])
    assert found["best"] == ["compile", "fused"]
    assert "begun" not in found


def test_what_times_each_kernels_forms_comes_after_all_that_goes_without(
    ways: dict[str, Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(GIVES, "compile:max-autotune", 0.4)
    ways["compile:max-autotune"] = way("compile:max-autotune", compiles=True)
    tried = [tuple(one["ways"]) for one in trials(tmp_path).found["trials"]]
    at = tried.index(("compile:max-autotune",))
    assert ("compile", "tf32", "fused") in tried[:at]
    assert all("compile:max-autotune" in one for one in tried[at:])
    assert {one for one in tried[at + 1 :] if "tf32" in one}


def test_the_best_is_told_by_its_own_time_not_by_how_slow_the_host_was_beside_it(
    ways: dict[str, Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """13.1 ms -> 1.80 ms is a smaller share than 7.69 ms -> 1.34 ms, and a longer step."""
    times = {"tf32": (13.1e6, 1.80e6), "compile": (7.69e6, 1.34e6)}
    for name in set(ways) - set(times):
        del ways[name]
    ways["tf32"] = way("tf32", conflicts=frozenset({"compile"}))

    def run(workload: Workload, kept: Any, one: Way, *, allowed: Allowed) -> Any:
        before, after = times[one.name]
        return SimpleNamespace(
            verdict="helped", why="", unapplied=False, timing=SimpleNamespace(before_ns=before, after_ns=after)
        )

    monkeypatch.setattr(treat_exhaustive, "run_trial", run)
    assert trials(tmp_path).found["best"] == ["compile"]


def test_a_trial_that_takes_longer_than_is_left_ends_and_leaves_the_time_for_the_last_comparison(
    ways: dict[str, Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    quick = treat_exhaustive.run_trial

    def run(workload: Workload, kept: Any, one: Way, **more: Any) -> Any:
        if one.name == "compile":
            with contextlib.suppress(Exception):  # as a compiler does that times its kernels
                time.sleep(30)
        return quick(workload, kept, one, **more)

    monkeypatch.setattr(treat_exhaustive, "run_trial", run)
    begin = time.monotonic()
    found = trials(tmp_path, seconds=treat_exhaustive.FINAL_S + 0.5).found
    assert time.monotonic() - begin < 10
    assert [one["ways"] for one in found["trials"]] == [["tf32"]]
    assert found["best"] == ["tf32"]
    assert "begun" not in found
    assert found["left"][:2] == [["compile"], ["compile:regional"]]
    assert ["fused"] in found["left"]


def test_the_best_few_by_their_own_times_are_timed_in_turns_and_the_fastest_then_is_the_best(
    ways: dict[str, Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Three finalists of four within 15 %: their order in turns is another than in their trials."""
    for name in set(ways) - {"compile", "tf32", "fused", "layout"}:
        del ways[name]
    free = {name: way(name, conflicts=frozenset(ways)) for name in ways}
    ways.update(free)
    alone = {"compile": 5.0, "tf32": 5.1, "fused": 5.5, "layout": 5.6}
    turns = {"untreated": 10.0, "compile": 5.4, "tf32": 5.0, "fused": 5.2, "treat": 5.1}

    def run(workload: Workload, kept: Any, one: Way, *, allowed: Allowed) -> Any:
        timing = SimpleNamespace(before_ns=10.0, after_ns=alone[one.name])
        return SimpleNamespace(verdict="helped", why="", unapplied=False, timing=timing)

    asked: list[set[str]] = []

    def in_turns(workload: Workload, stacks: dict[str, list[Way]]) -> dict[str, float]:
        asked.append(set(stacks))
        return {name: turns[name] for name in stacks}

    monkeypatch.setattr(treat_exhaustive, "run_trial", run)
    monkeypatch.setattr(treat_exhaustive, "in_turns", in_turns)
    found = trials(tmp_path)
    found.compare(["layout"])
    assert asked == [{"untreated", "treat", "compile", "tf32", "fused"}]
    assert (found.found["best"], found.found["ratio"]) == (["tf32"], 5.0 / 5.1)
    assert found.found["turns_ns"] == {"untreated": 10.0, "treat": 5.1, "best": 5.0}
    found.compare(["tf32"])
    assert asked[-1] == {"untreated", "treat", "compile", "fused"}
    assert (found.found["best"], found.found["ratio"]) == (["tf32"], 1.0)


def test_where_nothing_helped_the_untreated_step_is_the_best(
    ways: dict[str, Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = trials(tmp_path, seconds=0.0)
    monkeypatch.setattr(treat_exhaustive, "in_turns", lambda workload, stacks: dict.fromkeys(stacks, 4.0))
    found.compare([])
    assert (found.found["best"], found.found["ratio"]) == ([], 1.0)
    found.compare(["tf32"])
    assert (found.found["best"], found.found["ratio"]) == ([], 1.0)
