"""The run over all workloads: each in a process of its own, bounded, written down as it goes, and continued later."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from bench.gpu import treat
from bench.gpu.treat import Lane, Run, child, execute, lanes_of, resumable, salvaged, unfinished, warm

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

NAMES = ["mlp_tiny", "moe_host_loop"]


def run_in(folder: Path, deadline_s: float = 500.0, again: bool = False) -> Run:
    return Run(folder, "cpu", True, deadline_s, 60.0, 300.0, again)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What processes were asked for, (module, workload); the first workload's fails."""
    found: list[tuple[str, str]] = []

    def ran(run: Run, lane: Lane, words: list[str], part: Path, limit_s: float) -> dict[str, Any]:
        found.append((words[0].rpartition(".")[2], words[1]))
        assert limit_s <= run.deadline_s
        if words[0].endswith("exhaustive"):
            return {"trials": [{"ways": ["compile"]}], "ratio": 1.0, "treat_kept": ["compile"], "process_s": 1.0}
        if words[1] == NAMES[0]:
            return {"error": "ended with status 1", "told": "", "process_s": 1.0}
        return {"kept": ["compile"], "trials": [], "n_trials": 0, "process_s": 1.0}

    monkeypatch.setattr(treat, "ran", ran)
    return found


def test_one_failure_does_not_lose_the_others_and_is_written_down(asked: list[Any], tmp_path: Path):
    assert not execute(run_in(tmp_path), [Lane()], NAMES, NAMES)
    assert asked == [("treat_one", NAMES[0]), ("treat_one", NAMES[1]), ("treat_exhaustive", NAMES[1])]
    written = json.loads((tmp_path / treat.FILE).read_text())
    assert written["workloads"][NAMES[0]]["treat"]["error"] == "ended with status 1"
    assert written["workloads"][NAMES[1]]["treat"]["kept"] == ["compile"]
    assert written["device"] == "cpu"


def test_a_later_call_goes_on_with_what_is_missing_and_again_begins_anew(asked: list[Any], tmp_path: Path):
    execute(run_in(tmp_path), [Lane()], NAMES, NAMES)
    asked.clear()
    execute(run_in(tmp_path), [Lane()], NAMES, NAMES)
    assert asked == [("treat_one", NAMES[0])]
    asked.clear()
    execute(run_in(tmp_path, again=True), [Lane()], NAMES[1:], [])
    assert asked == [("treat_one", NAMES[1])]


def test_nothing_is_begun_after_the_deadline(asked: list[Any], tmp_path: Path):
    assert execute(run_in(tmp_path, deadline_s=treat.LEAST_S - 1), [Lane()], NAMES, NAMES)
    assert asked == []


def test_exhaustive_trials_are_gone_on_with_and_their_ratio_is_that_of_what_is_kept_now():
    entry = {"treat": {"kept": ["tf32"]}, "exhaustive": {"trials": [1], "treat_kept": [], "ratio": 1.0, "error": "x"}}
    assert resumable(entry) == {"trials": [1], "treat_kept": []}
    assert unfinished(entry)
    entry["exhaustive"] |= {"treat_kept": ["tf32"]}
    assert not unfinished(entry)
    entry["exhaustive"] |= {"left": [["compile"]]}
    assert unfinished(entry)


def test_trials_of_a_process_that_ended_early_are_read_from_its_ledger(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps({"way": "tf32", "verdict": "helped", "kept": [], "code": "x" * 999}))
    assert salvaged(tmp_path) == [{"way": "tf32", "verdict": "helped", "kept": []}]
    assert salvaged(tmp_path / "none") == []


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(treat, "GRACE_S", 1.0)
    begin = time.monotonic()
    status, _ = child(run_in(tmp_path), Lane(), ["timeit", "-n1", "-r1", "-s", "import time", "time.sleep(60)"], 2.0)
    assert status is None
    assert time.monotonic() - begin < 10


def test_a_process_that_fails_says_why_and_one_that_does_not_ends_with_zero(tmp_path: Path):
    status, said = child(run_in(tmp_path), Lane(), ["timeit", "-n1", "-r1", "1 / 0"], 30.0)
    assert status == 1
    assert "ZeroDivisionError" in said
    assert child(run_in(tmp_path), Lane(), ["timeit", "-n1", "-r1", "1"], 30.0)[0] == 0


def test_each_gpu_has_cores_of_its_own_and_one_alone_has_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(treat.os, "sched_getaffinity", lambda _: {3, 0, 1, 2, 4}, raising=False)
    assert lanes_of(1) == [Lane()]
    assert Lane().prefix() == []
    assert Lane().environment() == {}
    first, second = lanes_of(2)
    assert (first.cores, second.cores) == ((0, 1), (2, 3))
    assert second.prefix() == ["taskset", "--cpu-list", "2,3"]
    assert second.environment() == {"CUDA_VISIBLE_DEVICES": "1"}


def test_what_is_treated_anew_is_compiled_before_and_the_record_says_so(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    compiled: list[str] = []
    monkeypatch.setattr(treat, "child", lambda run, lane, words, limit_s: (compiled.append(words[1]), (0, ""))[1])
    run = run_in(tmp_path)
    run.record = {"workloads": {NAMES[0]: {}, NAMES[1]: {"treat": {"kept": []}}}}
    run.warm = 2
    warm(run, [Lane()], NAMES, [])
    assert compiled == [NAMES[0]]
    assert run.warmed == {NAMES[0]}
    run.warm = 1
    warm(run, [Lane()], NAMES, [NAMES[1]])  # treated before, and to be tried exhaustively
    assert compiled[1:] == NAMES
