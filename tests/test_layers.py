"""The import contracts hold, and a copy of the package that breaks one fails: the check can fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """The package without its data, beside the configuration."""
    shutil.copy(root / "pyproject.toml", tmp_path)
    shutil.copytree(root / "src" / "gobrrr", tmp_path / "gobrrr", ignore=shutil.ignore_patterns("data", "__pycache__"))
    return tmp_path


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, "-c", LINT], cwd=folder, env=environment, capture_output=True, text=True)


def add(path: Path, line: str) -> None:
    path.write_text(f"{path.read_text()}\n\n{line}\n")


def test_the_package_keeps_its_layers(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("units.py", "from gobrrr.model import machine"),
        ("units.py", "from gobrrr import errors"),
        ("model/machine.py", "def late():\n    from gobrrr import hardware"),
        ("hardware/table.py", "import gobrrr.cost"),
        ("hardware/table.py", "import gobrrr.cli"),
        ("errors.py", "import torch"),
        ("analysis/events/steps.py", "from gobrrr.analysis.budget import idle"),
        ("analysis/places/tree.py", "from gobrrr.analysis.savings import gains"),
        ("doors/pipeline.py", "from gobrrr.doors import live"),
    ],
)
def test_an_import_that_breaks_a_contract_is_found(module: str, line: str, copy: Path) -> None:
    add(copy / "gobrrr" / module, line)
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout


def test_the_house_in_the_design_is_the_one_on_disk(root: Path) -> None:
    """What stands in a folder's own lines (analysis, doors) is all that is there, too."""
    drawn = re.search(r"^src/gobrrr/\n(.*?)^```", (root / "docs/design.md").read_text("utf-8"), re.M | re.S)
    assert drawn is not None
    folder, drawn_in = "", {"": set[str]()}
    for line in drawn[1].splitlines():
        names = [name.removesuffix("/") for name in line[:25].split()]
        if line.startswith("    ") and names:
            drawn_in.setdefault(folder, set()).add(names[0])
        elif names:
            folder = names[0]
            drawn_in[""] |= set(names)
    for folder, names_drawn in drawn_in.items():
        paths = [path for path in (root / "src/gobrrr" / folder).iterdir() if path.is_file() or any(path.glob("*.*"))]
        there = {path.stem if folder else path.name for path in paths if not path.name.startswith("__pycache__")}
        there -= {"__init__", "__main__.py", "py.typed"}
        assert names_drawn <= there
        assert names_drawn == there or folder == "treatments"
