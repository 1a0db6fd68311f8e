"""The import contracts hold, and a copy of the package that breaks one fails: the check can fail."""

from __future__ import annotations

import os
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
    ],
)
def test_an_import_that_breaks_a_contract_is_found(module: str, line: str, copy: Path) -> None:
    add(copy / "gobrrr" / module, line)
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
