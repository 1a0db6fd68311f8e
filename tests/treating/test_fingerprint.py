"""What makes two workloads the same, and what doesn't."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gobrrr.observe.live.pull import loaded_as_before  # noqa: E402
from gobrrr.treating.bench import load  # noqa: E402
from gobrrr.treating.fingerprint import fingerprint  # noqa: E402

pytestmark = pytest.mark.torch

SOURCE = """
import torch
import gobrrr

SCALE = 2.0

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.one(x) * SCALE

def halve(x):
    return x / 2

def workload():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4)

    def step(x):
        halve(model(x)).sum().backward()
        optimizer.step()

    return gobrrr.Workload(model=model, step=step, inputs=(x,), optimizer=optimizer)
"""


def of(folder: Path, source: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "w.py").write_text(source)
    with loaded_as_before():
        return fingerprint(load(f"{folder}/w.py:workload"))


@pytest.fixture
def own(tmp_path: Path) -> str:
    return of(tmp_path / "own", SOURCE)


def test_it_is_the_same_in_another_run_and_another_folder(tmp_path: Path, own: str) -> None:
    assert of(tmp_path / "other", SOURCE) == own
    assert len(own) == 16


@pytest.mark.parametrize(
    ("old", "new"),
    [("    return x / 2", "    # a remark\n    return x / 2"), ("torch.ones(2, 4)", "torch.zeros(2, 4)")],
    ids=["comment", "values"],
)
def test_what_changes_no_work_is_the_same(tmp_path: Path, own: str, old: str, new: str) -> None:
    assert of(tmp_path / "other", SOURCE.replace(old, new)) == own


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.ones(2, 4)", "torch.ones(3, 4)"),
        ("x / 2", "x / 3"),
        ("x / 2", "x * 2"),
        ("SCALE = 2.0", "SCALE = 3.0"),
        ("self.one(x) * SCALE", "self.one(x).relu() * SCALE"),
        ("SGD(model.parameters(), lr=0.1)", "SGD(model.parameters(), lr=0.1, foreach=True)"),
        ("torch.optim.SGD", "torch.optim.AdamW"),
        ("model = Net()", "model = Net().eval()"),
        ("model = Net()", "model = Net().double()"),
        ("        optimizer.step()", "        optimizer.step(); optimizer.zero_grad()"),
    ],
)
def test_what_changes_the_work_is_another(tmp_path: Path, own: str, old: str, new: str) -> None:
    assert old in SOURCE
    assert of(tmp_path / "other", SOURCE.replace(old, new)) != own
