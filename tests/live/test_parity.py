"""An unmodified script and the same step through the API get the same verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.doors import pipeline  # noqa: E402
from gobrrr.hardware import cache  # noqa: E402
from gobrrr.hardware.measure.device import cpu_name  # noqa: E402
from gobrrr.model.measured import Curve, CurvePoint, Environment, MeasuredFigure, Measurement, Quantity  # noqa: E402
from gobrrr.observe.live.loops.loop import Finder  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.live.look import CPU, diagnosed  # noqa: E402

WINDOWS = {"warmup": 2, "most_warmup": 8, "window": 4, "profiled": 2}
MODEL = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(60)])
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
"""
LOOP = """
for _ in range(60):
    x = torch.randn(8, 64)
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
STEP = """
def step():
    x = torch.randn(8, 64)
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
TINY = """
import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=200)
model = BertForSequenceClassification(config)
items = [{"input_ids": torch.randint(0, 200, (16,)), "labels": torch.tensor(at % 2)} for at in range(64)]
"""
TRAINER = """
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments(
    output_dir={folder!r}, per_device_train_batch_size=4, max_steps=60, report_to=[], save_strategy="no",
    use_cpu=True, disable_tqdm=True, dataloader_num_workers=0, logging_steps=1000, max_grad_norm=0.0,
)
Trainer(model=model, args=arguments, train_dataset=items).train()
print("trained")
"""
TRAINER_STEP = """
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)  # as the Trainer makes it
batches = torch.utils.data.DataLoader(items * 100, batch_size=4)
batch = iter(batches)


def step():
    model.train()
    model(**next(batch)).loss.backward()
    optimizer.step()
    model.zero_grad()
"""


def kept_machine(folder: Path) -> None:
    """Ceilings of this CPU in the cache, so that nothing is measured."""

    def entry(group: str, name: str, unit: str, value: float) -> MeasuredFigure:
        return MeasuredFigure(
            group=group, name=name, unit=unit, amount=Quantity(value=value, low=value, high=value, runs=1)
        )

    environment = Environment(
        device_name=cpu_name(), kind="cpu", torch=str(torch.__version__), date="2026-01-01", threads=2
    )
    entries = (
        entry("matrix", "float32", "FLOP/s", 2e11),
        entry("vector", "float32 fma", "FLOP/s", 2e11),
        entry("memory", "copy", "B/s", 2e10),
        entry("cache", "last level", "B", 32 * 2.0**20),
    )
    points = (CurvePoint(x=8 * 2.0**20, y=entries[2].amount), CurvePoint(x=2.0**15, y=entries[1].amount))
    curve = Curve(name="bandwidth by working set", x_unit="B", y_unit="B/s", points=points)
    cache.save(Measurement(environment=environment, entries=entries, curves=(curve,)), folder / "gobrrr" / "machines")


def gobrrr_says(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """(the diagnosis, what was printed beside it)."""
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "gobrrr", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def ran(tmp_path: Path, script: str, *options: str) -> tuple[dict[str, Any], str]:
    """The diagnosis of an unmodified script."""
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    return gobrrr_says(tmp_path, "run", "--json", *options, "train.py")


def called(tmp_path: Path, script: str) -> dict[str, Any]:
    """The diagnosis of the same step, called by its name."""
    (tmp_path / "step.py").write_text(script, encoding="utf-8")
    return gobrrr_says(tmp_path, "diagnose", "--json", "step.py:step")[0]


def codes(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["findings"]]


@pytest.mark.slow  # two processes that load torch
def test_a_plain_loop(tmp_path: Path) -> None:
    kept_machine(tmp_path)
    script, _ = ran(tmp_path, MODEL + LOOP)
    step = called(tmp_path, MODEL + STEP)
    assert script["regime"] == step["regime"] == "overhead"
    assert "O03" in codes(script)
    assert "O03" in codes(step)
    assert script["live"]["steps_from"].startswith("steps of AdamW")


def test_a_plain_loop_in_this_process() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.randn(8, 64)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    watcher = Watcher(options=WatchOptions(**WINDOWS))
    finder = Finder(watcher)
    finder.open()
    try:
        for _ in range(40):
            step()
    finally:
        finder.close()
    found = [pipeline.diagnose(watcher.profile("train.py", "a CPU"), on=CPU), diagnosed(step, **WINDOWS)]
    assert [one.regime for one in found] == ["overhead"] * 2
    assert all("O03" in {finding.code for finding in one.findings} for one in found)
    assert found[0].live is not None
    assert found[0].live.steps_from.startswith("steps of AdamW")


@pytest.mark.slow
def test_a_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    kept_machine(tmp_path)
    script, said = ran(tmp_path, TINY + TRAINER.format(folder=str(tmp_path / "out")), "--stop-after")
    assert "trained" not in said  # it was ended when enough was seen
    step = called(tmp_path, TINY + TRAINER_STEP)
    assert script["regime"] == step["regime"]
    assert codes(step)[0] in codes(script)
