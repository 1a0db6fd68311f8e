"""The experiments on this machine's CPU, small: they run, judge every claim, and leave torch as it was."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gobrrr import api, cli
from gobrrr.lab import catalogue, counting, session
from gobrrr.lab.bert import training_step
from gobrrr.model.experiment import Experiment
from tests.hardware.test_measure_torch import state

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
    pytest.mark.filterwarnings("default"),
]

QUICK = ("activations", "overhead", "operators", "utilization", "tensorcores")
COMPILED = ("intensity", "fusion", "remat", "scaling")
LIMIT_S = 30.0
"""Each is to take under 20 s on an idle machine of two processors. A test's machine may be busy: processor time counts,
and as much of it for each of torch's threads."""


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def run(name: str) -> Experiment:
    import torch

    begun = time.process_time()
    found = api.lab([name], device="cpu").experiments[0]
    assert time.process_time() - begun < LIMIT_S * torch.get_num_threads()
    return found


def check(one: Experiment) -> None:
    assert one.status == "measured", one.why
    assert one.tables
    assert one.judgements
    assert one.settings["seed"]
    for table in one.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("name", QUICK)
def test_runs_and_restores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(session, "CPU_BUDGET_S", 1.0)
    monkeypatch.setattr(catalogue, "CPU_BUDGET_S", 1.0)
    if name == "tensorcores":  # bfloat16 is slow on a CPU without units for it
        monkeypatch.setattr(session.Lab, "sized", lambda self, *, cpu, gpu: cpu // 4)
    before = state(torch)
    check(run(name))
    assert state(torch) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_runs_with_the_compiler_and_restores(name: str) -> None:
    import torch
    import torch._dynamo.config
    import torch._inductor.config

    before = state(torch), torch._inductor.config.compile_threads, torch._dynamo.config.recompile_limit
    found = run(name)
    if "torch.compile" in found.why:
        pytest.skip(found.why)
    check(found)
    assert (state(torch), torch._inductor.config.compile_threads, torch._dynamo.config.recompile_limit) == before


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    found = api.lab(["intensity"], device="cpu").experiments[0]
    assert found.status == "skipped"
    assert "needs a C++ compiler" in found.why


def test_the_count_of_a_step_is_torchs_own() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    step = training_step(torch, "cpu", layers=1, width=32, heads=2, batch=2, length=8)
    flop, unknown = counting.flop_by_class(counting.record(torch, step))
    with FlopCounterMode(display=False) as counter:
        step()
    assert flop["tensor contraction"] == counter.get_total_flops()
    assert unknown == []


def test_any_step_can_be_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_step.py").write_text(
        "import torch\n\ndef make():\n    x = torch.rand(64, 64)\n    return lambda: (x @ x).relu()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = api.lab(["operators"], device="cpu", step="my_step:make").experiments[0]
    assert found.judgements == ()
    assert found.tables[1].rows[0][1] == 2 * 64**3 + 64 * 64


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "CPU_BUDGET_S", 1.0)
    page = tmp_path / "lab.html"
    assert cli.main(["lab", "overhead", "--device", "cpu", "--json", "--html", str(page)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["experiments"][0]["name"] == "overhead"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
