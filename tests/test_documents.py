"""Every command and every snippet of README.md and docs/manual.md runs as it is printed."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from gobrrr import cli
from tests.conftest import H100, ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # the profiler's own, where there is no GPU

DOCUMENTS = ("README.md", "docs/manual.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS_TORCH = ("run", "treat", "predict", "count", "lab", "machine")
SLOW = ("treat workload.py:workload", "lab --all", "predict workload.py", "count workload.py")
"""What takes more than a few seconds: in `make nightly`."""

TRAIN = """
import argparse

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = [torch.randn(32, 64) for _ in range(60)]


def train(batch):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()


def step():
    train(loader[0])


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--lr", type=float, default=1e-3)
    optimizer.param_groups[0]["lr"] = options.parse_args().lr
    for batch in loader:
        train(batch)
"""


def blocks(document: str) -> list[tuple[str, str]]:
    """Language and text of each fenced block."""
    return BLOCK.findall((ROOT / document).read_text())


def commands() -> list[Any]:
    """Each line that begins with gobrrr, without its comment, as a parameter."""
    lines = [
        line for document in DOCUMENTS for kind, text in blocks(document) if not kind for line in text.splitlines()
    ]
    found = dict.fromkeys(line.partition("#")[0].strip() for line in lines if line.startswith("gobrrr "))
    return [parameter(line.removeprefix("gobrrr ")) for line in found]


def parameter(said: str) -> Any:
    """A command line with what it needs."""
    marks = [pytest.mark.slow] if said.startswith(SLOW) or said == "machine" else []
    marks += [pytest.mark.torch] if said.split()[0] in NEEDS_TORCH or "train.py" in said else []
    return pytest.param(said, marks=marks, id=said)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The saved answer of a trace, made once."""
    home = tmp_path_factory.mktemp("answer")
    shutil.copy(H100 / "mlp_tiny.faulty.json.gz", home / "trace.json.gz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert call("diagnose trace.json.gz --save answer.json --quiet", home) == 0
    return home / "answer.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Path) -> Path:
    """A folder with the files that the documents speak of."""
    shutil.copy(H100 / "mlp_tiny.faulty.json.gz", tmp_path / "trace.json.gz")
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("DATA", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    shutil.copy(answer, tmp_path)
    return tmp_path


def call(said: str, folder: Path) -> int:
    """The exit status of a command line, with `> FILE` as a shell takes it."""
    words = shlex.split(said)
    if ">" not in words:
        return cli.main(words)
    with open(folder / words[-1], "w") as file, contextlib.redirect_stdout(file):
        return cli.main(words[: words.index(">")])


@pytest.mark.parametrize("said", commands())
def test_a_command_of_the_documents_runs(said: str, folder: Path, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("torch"):
        pytest.importorskip("torch")
        from tests.live.test_parity import kept_machine

        kept_machine(folder / "cache")
    if "workload.py:" in said:
        assert call(f"{'treat' if said.startswith('treat') else 'predict'} --example > workload.py", folder) == 0
    assert call(said, folder) == 0


def names() -> dict[str, Any]:
    """What the snippets take as given: the user's own."""
    import torch

    import gobrrr

    given: dict[str, Any] = {"__name__": "documents"}
    exec(compile(TRAIN, "train.py", "exec"), given)
    given.update(
        gobrrr=gobrrr,
        train_step=given["step"],
        tokens=torch.randn(32, 64),
        labels=torch.randn(32, 1),
        loss=torch.nn.functional.mse_loss,
    )
    return given


SNIPPETS = [(document, text) for document in DOCUMENTS for kind, text in blocks(document) if kind == "python"]


@pytest.mark.torch
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, marks=[pytest.mark.slow] if "treat(" in text else [], id=f"{document} {number}")
        for number, (document, text) in enumerate(SNIPPETS)
    ],
)
def test_a_snippet_of_the_documents_runs(text: str, folder: Path) -> None:
    pytest.importorskip("torch")
    from tests.live.test_parity import kept_machine

    kept_machine(folder / "cache")
    exec(compile(text, "snippet.py", "exec"), names())


def test_the_two_commands_are_targets_of_the_makefile_and_each_link_leads_somewhere() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        assert set(re.findall(r"^make (\w+)", text, re.MULTILINE)) <= targets
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, anchor = link.partition("#")
            if file.startswith("http"):
                continue
            target = (ROOT / document).parent / file if file else ROOT / document
            assert target.is_file(), link
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if anchor else []
            slugs = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings]
            assert not anchor or anchor in slugs, link
