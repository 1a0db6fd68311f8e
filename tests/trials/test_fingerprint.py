"""What makes two workloads the same, and what doesn't."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gobrrr.observe.live.pull import loaded_as_before  # noqa: E402
from gobrrr.trials.bench import load  # noqa: E402
from gobrrr.trials.fingerprint import fingerprint  # noqa: E402

pytestmark = pytest.mark.torch

SOURCE = """
import torch
import gobrrr

from dataclasses import dataclass
from functools import partial

import settings

SCALE = 2.0
CFG = {"n": 3, "parts": ["a", "b"], "names": {"x", "y", "z"}}
TABLE = torch.ones(5, 5)

@dataclass
class Config:
    depth: int = 2

config = Config()

class Base(torch.nn.Module):
    def halved(self, x):
        return x * 0.5

class Net(Base):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(4, 4)
        self.heads, self.dtype, self.sizes = 8, torch.float32, [1, 2]

    def forward(self, x):
        return self.one(x) * SCALE

def halve(x, by=partial(torch.mul, other=1.0)):
    for _ in range(CFG["n"] + config.depth + settings.REPEATS):
        x = settings.twice(x) + TABLE.sum()
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


SETTINGS = """
REPEATS = 4
UNUSED = 1

def twice(x):
    return x * 2
"""


def of(folder: Path, source: str, settings: str = SETTINGS) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "settings.py").write_text(settings)
    sys.modules.pop("settings", None)  # of another folder
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
        ('"n": 3', '"n": 12'),
        ('["a", "b"]', '["a", "c"]'),
        ("depth: int = 2", "depth: int = 20"),
        ("torch.ones(5, 5)", "torch.ones(50, 50)"),
        ("self.dtype, self.sizes = 8,", "self.dtype, self.sizes = 2,"),
        ("8, torch.float32", "8, torch.bfloat16"),
        ("[1, 2]", "[1, 3]"),
        ("other=1.0", "other=2.0"),
        ("x * 0.5", "x * 0.25"),
        ("model = Net()", "model = Net().eval()"),
        ("model = Net()", "model = Net().double()"),
        ("        optimizer.step()", "        optimizer.step(); optimizer.zero_grad()"),
    ],
)
def test_what_changes_the_work_is_another(tmp_path: Path, own: str, old: str, new: str) -> None:
    assert old in SOURCE
    assert of(tmp_path / "other", SOURCE.replace(old, new)) != own


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [("REPEATS = 4", "REPEATS = 5", False), ("x * 2", "x + x", False), ("UNUSED = 1", "UNUSED = 2", True)],
)
def test_what_the_step_takes_from_another_file_of_the_users_counts(
    tmp_path: Path, own: str, old: str, new: str, same: bool
) -> None:
    assert (of(tmp_path / "other", SOURCE, SETTINGS.replace(old, new)) == own) is same


@pytest.mark.slow  # a process that loads torch
def test_the_order_of_a_set_does_not_count(tmp_path: Path, own: str) -> None:
    code = (
        "import sys; from tests.trials.test_fingerprint import of, SOURCE; from pathlib import Path; "
        "print(of(Path(sys.argv[1]), SOURCE))"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # this process has another one
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": seed}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.split()[-1] == own
