"""A program keeps every line of its source whatever the folders are called that it lies in."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gobrrr.doors import pipeline  # noqa: E402
from gobrrr.model.events import EventKind  # noqa: E402
from gobrrr.model.frame_names import is_users  # noqa: E402
from gobrrr.observe.live.loops import step_intent  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.pull import loaded_as_before, pull, user_line  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402
from gobrrr.observe.static import session  # noqa: E402
from gobrrr.observe.targets import find_callable  # noqa: E402
from gobrrr.treatments.framework import capturing  # noqa: E402
from gobrrr.trials.bench import load  # noqa: E402
from gobrrr.trials.fingerprint import fingerprint  # noqa: E402
from tests.live.look import CPU  # noqa: E402

pytestmark = pytest.mark.torch

SOURCE = """
import torch
import gobrrr

x = torch.ones(64, 64)
COUNT = 20

def some_pieces():
    pieces = []
    for at in range(1, COUNT):
        pieces.append(x[:, :at] * 2)
    return pieces

def step():
    whole = torch.empty(64, 0)
    for piece in some_pieces():
        whole = torch.cat([whole, piece], dim=1)
    return whole.sum().item()

def fails():
    raise RuntimeError("operation would synchronize")

def trains():
    loss.backward()

def workload():
    return gobrrr.Workload(step=step)
"""

FOLDERS = (
    "plain",
    "gobrrr",
    "torch",
    "gobrrr/torch",
    "site-packages",
    "site-packages-notes",
    "dist-packages/torch/nn",
    "my_inductor/DataLoader",
)


@contextmanager
def program(tmp_path: Path, folder: str) -> Iterator[Path]:
    """The program's file, in a folder of that name."""
    home = tmp_path / folder
    home.mkdir(parents=True)
    file = home / "train.py"
    file.write_text(SOURCE)
    with loaded_as_before():
        yield file


@pytest.mark.parametrize("folder", ["gobrrr/torch", "site-packages"])
def test_a_live_diagnosis(tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # so that paths begin with the folder's name
    with program(tmp_path, folder):
        watcher = Watcher(options=WatchOptions(warmup=1, most_warmup=2, window=3, profiled=2))
        pull(watcher, find_callable(f"{folder}/train.py:step"), (), {})
        profile = watcher.profile("step", "a CPU")
    rank = profile.ranks[0]
    assert rank.seen is not None
    users = {one.user for one in rank.seen.sites}
    assert {re.sub(r"^.*/|\(.*\)", "", one or "") for one in users} == {"train.py: step", "train.py: some_pieces"}
    names = {rank.events.name_of(row) for row in rank.events.of(EventKind.PYTHON).tolist()}
    mine = {name for name in names if is_users(name)}
    assert {name.rpartition("): ")[2] for name in mine if "train.py(" in name} >= {"step", "some_pieces"}
    assert all("train.py(" in name or name.startswith("tests/") for name in mine)
    found = pipeline.diagnose(profile, on=CPU)
    lines = [place.source for one in found.findings for place in one.where if place.source is not None]
    assert lines
    assert all("train.py(" in one for one in lines)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_static_recording(tmp_path: Path, folder: str) -> None:
    with program(tmp_path, folder) as file:
        recording = session.record_named(f"{file}:step")
    lines = {one.user for one in recording.sites}
    assert all(line is not None and line.startswith(f"{file}(") for line in lines)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_fingerprint_of_a_workload_knows_its_own_files(tmp_path: Path, folder: str) -> None:
    with program(tmp_path, "elsewhere") as file:
        first = fingerprint(load(f"{file}:workload"))
    with program(tmp_path, folder) as file:
        assert fingerprint(load(f"{file}:workload")) == first
        file.write_text(SOURCE.replace("COUNT = 20", "COUNT = 21"))
    shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)
    with loaded_as_before():
        assert fingerprint(load(f"{file}:workload")) != first


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_lines_of_errors(tmp_path: Path, folder: str) -> None:
    line = 1 + SOURCE.splitlines().index('    raise RuntimeError("operation would synchronize")')
    with program(tmp_path, folder) as file:
        workload = load(f"{file}:workload")
        with pytest.raises(RuntimeError) as caught:
            workload.step.__globals__["fails"]()
    assert capturing._line_of(caught.value) == f" (train.py:{line})"
    assert user_line(caught.value) == f" at train.py:{line}"
    assert session._user_line(caught.value) == f" at {file}:{line}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_whether_it_is_written_to_train(tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with program(tmp_path, folder) as file:
        load(f"{file}:workload")
        module = step_intent.sys.modules["_gobrrr_train"]
        monkeypatch.setattr(step_intent.sys, "modules", {"__main__": module, "torch": torch})
        assert step_intent.training_is_written()
        monkeypatch.undo()
