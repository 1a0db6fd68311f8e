"""The bench of treatments: a device for one process at a time, steps in turns, and a record that goes on."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from bench.gpu import runs, treatments_turns
from bench.gpu.treat import CHOSEN, begun_anew
from bench.gpu.treat_one import Against, Limited, slim
from bench.gpu.treatment_workloads import ENTRIES, HELD_BACK, KNOWN
from bench.gpu.treatment_workloads.written import WRITTEN
from bench.gpu.treatments_one import recipes
from bench.gpu.treatments_turns import Runner, Turn, in_turns
from gobrrr.model.treated import Timing, Treated, TrialRecord
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework.way import TreatmentWay
from gobrrr.trials.arms import Arm
from gobrrr.trials.bench import LocalRunner
from gobrrr.trials.search import NamedProgress

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]


def way(name: str, step: Callable[[], None] = lambda: None, **more: Any) -> TreatmentWay:
    @contextlib.contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        yield Workload(step=step)

    return TreatmentWay(name=name, treatment=name, apply=apply, code="", numerics="none", rank=0, **more)


class Clock:
    """A clock that only steps move, each by about as much as it says: a busy machine changes nothing."""

    def __init__(self) -> None:
        self.ns, self.dice = 0.0, random.Random(0)

    def perf_counter(self) -> float:
        return self.ns / 1e9

    def perf_counter_ns(self) -> float:
        return self.ns

    def step(self, ns: float) -> Callable[[], None]:
        def call() -> None:
            self.ns += ns * self.dice.uniform(1.0, 1.02)

        return call


def test_arms_in_turns_show_what_each_of_them_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(treatments_turns, "time", clock)
    plain = Workload(step=clock.step(2e6))
    base = Runner(Arm(plain, ()), 12e6)
    runners = {
        "quick": Runner(Arm(plain, (way("quick", clock.step(2e5)),)), 12e6),
        "same": Runner(Arm(plain, ()), 12e6),
        "twice": Runner(Arm(plain, ()), 12e6, work=2.0),
    }
    prepared: list[None] = []
    found = in_turns(base, runners, prepare=lambda: prepared.append(None), seconds=30.0)
    rounds = found["quick"].compared.timing.rounds
    assert len(prepared) == rounds * (len(runners) + 2)
    assert found["quick"].compared.verdict == "helped"
    assert found["same"].compared.verdict != "helped"
    assert len(found["twice"].differences) == rounds


def test_one_process_at_a_time_has_the_device(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "turn")
    turn.take()
    code = (
        "import sys; from pathlib import Path; from bench.gpu.treatments_turns import Turn\n"
        "turn = Turn(Path(sys.argv[1])); print('waits', flush=True); turn.take(); print('has it', flush=True)\n"
        "print(turn.clock() < 10**30, flush=True); turn.give()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "turn")], stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin"},
    )  # fmt: skip
    assert other.stdout is not None
    assert other.stdout.readline() == "waits\n"
    time.sleep(0.2)
    assert other.poll() is None
    before = turn.used_s
    assert before > 0
    turn.give()
    said, _ = other.communicate(timeout=30)
    assert said.startswith("has it\n")
    assert other.returncode == 0
    assert turn.used_s == turn.held_s


def test_recipes_are_what_fits_of_them() -> None:
    names = ("bf16-autocast", "compile", "compile:reduce-overhead", "fused-optimizer", "tf32")
    ways = {name: way(name) for name in names}
    training = recipes(ways, trains=True, typed=False)
    assert ("bf16-autocast", "compile:reduce-overhead", "fused-optimizer") in training
    assert ("bf16-autocast", "fused-optimizer") in training  # no channels-last here
    typed = recipes(ways, trains=True, typed=True)
    assert ("compile:reduce-overhead", "fused-optimizer") in typed
    assert not any("bf16-autocast" in one or "tf32" in one for one in typed)
    assert recipes({"tf32": way("tf32")}, trains=False, typed=False) == []


@pytest.fixture
def against(tmp_path: Path) -> Against:
    """A workload that was treated: compiled, and with a larger batch."""
    one = Against(WRITTEN["columns_train"], tmp_path, Turn(tmp_path / "turn"), trials=3, budget_s=300.0, each_s=60.0,
                  device="cpu", tiny=True)  # fmt: skip
    names = ("compile:reduce-overhead", "fused-optimizer", "tf32", "bf16-autocast", "cuda-graph")
    one.ways = {name: way(name) for name in names} | {"larger-batch": way("larger-batch", work=2.0)}
    one.workload = one.entry.made(device="cpu", tiny=True)
    one.found["treat"] = {"kept": ["compile:reduce-overhead", "larger-batch"]}
    return one


def test_what_treat_kept_is_held_against_recipes_for_the_same_work(against: Against) -> None:
    first, *rest = against.sets()
    assert first == "bf16-autocast + cuda-graph + fused-optimizer"  # before the compiler makes graphs
    assert rest[0] == "compile:reduce-overhead"
    assert not any("larger-batch" in one for one in against.sets())


def test_the_best_is_the_fastest_whose_numbers_hold_and_may_be_the_step_as_it_is(against: Against) -> None:
    def row(times: list[float], verdict: str = "helped") -> dict[str, Any]:
        return {"times_ns": times, "before_ns": 10.0, "verdict": verdict}

    against.rows |= {
        "compile:reduce-overhead": row([5.0, 6.0, 7.0]), "tf32": row([1.0, 1.0], "unsafe"), "cuda-graph": row([9.0]),
    }  # fmt: skip
    told = against.against()
    assert "bf16-autocast + fused-optimizer" in told.pop("left")  # the time did not reach it
    assert told == {
        "mine": "compile:reduce-overhead", "best": "cuda-graph", "untreated_ns": 10.0, "treat_ns": 6.0, "best_ns": 9.0,
    }  # fmt: skip
    against.rows["cuda-graph"] = row([11.0])
    assert against.against()["best"] == ""
    against.found["treat"]["kept"] = []
    assert against.against()["treat_ns"] == 10.0


def test_treating_ends_after_so_many_trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unapplied = iter((False, True, False))
    monkeypatch.setattr(LocalRunner, "__init__", lambda self, *_, **__: None)
    monkeypatch.setattr(LocalRunner, "trial", lambda *_: SimpleNamespace(unapplied=next(unapplied)))
    bench = Limited(None, "one", Turn(tmp_path / "turn"), 2, NamedProgress(None))
    for _ in range(3):
        bench.trial((), None, None)  # type: ignore[arg-type]
    assert len(bench.ends) == 2
    with pytest.raises(KeyboardInterrupt):
        bench.trial((), None, None)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        bench.look((), 1.0, 0.0)  # for a trial that does not come


def test_what_a_workload_gave_at_first_stays_when_it_is_measured_anew() -> None:
    first = {"treat": {"kept": ["tf32"]}, "against": {"treat_ns": 2.0}, "commit": "abc", "date": "2026-11-29"}
    once = begun_anew({"what": "one", "rows": {"tf32": {}}, "unfit": {}, **first})
    assert once == {"what": "one", "commit": "abc", "date": "2026-11-29", "first_sight": first,
                    "left": ["what it gives now"]}  # fmt: skip
    assert runs.unfinished(once)
    assert begun_anew({**once, "treat": {"kept": []}})["first_sight"] == first


def test_the_first_of_each_family_come_first() -> None:
    order = runs.ordered([one for one in ENTRIES.values() if one.device == "cuda"])
    families = [ENTRIES[name].family for name in order]
    assert len(set(families[:15])) == 15


def test_those_that_treat_is_held_against_are_of_all_families_and_none_is_set_aside() -> None:
    assert not set(CHOSEN) & HELD_BACK
    families = {KNOWN[name].family for name in CHOSEN}
    assert len(CHOSEN) >= 14
    assert {one.family for one in ENTRIES.values() if one.device == "cuda"} - families == {
        "recommender"
    }  # columns_train is one


@pytest.mark.parametrize(
    ("device", "name"), [("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("cpu", "cpu")]
)
def test_the_file_is_named_by_the_device(device: str, name: str) -> None:
    assert runs.slug(device) == name


def test_what_is_left_is_gone_on_with() -> None:
    assert runs.unfinished(None)
    assert runs.unfinished({"error": "ended with status 1"})
    assert runs.unfinished({"left": ["compile"]})
    assert not runs.unfinished({"left": [], "rows": {}})


def test_tiny_results_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    out.mkdir()
    monkeypatch.setattr(runs, "RESULTS", home)
    path = out / "treatments_cpu.json"
    path.write_text(json.dumps({"tiny": True}))
    assert runs.take(out, "treatments") == 2
    path.write_text(json.dumps({"tiny": False}))
    assert runs.take(out, "treatments") == 0
    assert (home / "treatments_cpu.json").is_file()


@pytest.mark.slow
def test_a_workload_is_measured_and_a_second_call_has_nothing_to_do(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "bench.gpu.treatments", str(tmp_path), "--device", "cpu", "--tiny", "--only",
             "policy_serve_one", "--each-s", "90"]  # fmt: skip
    first = subprocess.run(words, capture_output=True, text=True, timeout=500, check=True)  # a busy machine needs time
    assert "1 workloads to measure" in first.stdout
    found = json.loads((tmp_path / "treatments_cpu.json").read_text())["workloads"]["policy_serve_one"]
    assert "error" not in found, found["told"]
    assert {"bf16-cast", "compile"} <= {*found["rows"], *found["unfit"]}
    assert found["held_back"] is False
    second = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "0 workloads to measure" in second.stdout


def test_what_is_kept_of_a_treatment_is_small_and_is_what_the_page_reads():
    record = TrialRecord(
        way="compile:regional", treatment="compile", kept=("tf32",), verdict="helped", why="faster", code="x" * 9999,
        expected_ns=4e6, predicted_saving_ns=(1e6, 5e6), compile_s=float("nan"),
        timing=Timing(before_ns=10e6, after_ns=6.123456789e6, spread_ns=1e4, rounds=9, steps=90),
    )  # fmt: skip
    diagnosis: Any = SimpleNamespace(regime="memory")
    found = slim(Treated(target="x:y", before=diagnosis, after=None, trials=(record,), kept=("compile:regional",)))
    text = json.dumps(found)
    assert len(text) < 1000
    trial = json.loads(text)["trials"][0]
    assert trial["timing"]["after_ns"] == 6.12346e6
    assert trial["compile_s"] is None
    assert found["regime"] == "memory"
