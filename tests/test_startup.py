"""`import gobrrr` and `gobrrr --help` are quick and load no heavy library, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

LIMIT_S = 0.2
TRIES = 5
HEAVY = {"torch", "pandas", "scipy", "matplotlib", "plotly", "numba", "triton", "jax", "tensorflow", "dask", "sklearn"}

IMPORT = "import gobrrr"
HELP = "import runpy, sys; sys.argv = ['gobrrr', '--help']; runpy.run_module('gobrrr.cli', run_name='__main__')"
REPORT = "import atexit, sys; atexit.register(lambda: print('\\nmodules:', *sys.modules, file=sys.stderr))"

COMMANDS = [
    pytest.param([sys.executable, "-c", IMPORT], id="import"),
    pytest.param([sys.executable, "-m", "gobrrr.cli", "--help"], id="help"),
]


def environment(*folders: Path) -> dict[str, str]:
    path = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def heavy_modules(code: str, *folders: Path) -> set[str]:
    """Which of HEAVY are loaded when a fresh interpreter has run `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{REPORT}\n{code}"], env=environment(*folders), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stderr.rpartition("modules:")[2].split()
    assert "sys" in loaded
    return {name.partition(".")[0] for name in loaded} & HEAVY


def wall_s(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=environment(), capture_output=True, check=True)
    return time.perf_counter() - start


@pytest.mark.parametrize("command", COMMANDS)
def test_starts_quickly(command: list[str]) -> None:
    times = [wall_s(command) for _ in range(TRIES)]
    assert min(times) < LIMIT_S, times


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import", "help"])
def test_loads_no_heavy_library(code: str) -> None:
    assert heavy_modules(code) == set()


def test_a_heavy_library_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    assert heavy_modules("import torch", tmp_path) == {"torch"}


def test_a_library_that_is_there_is_not_loaded(tmp_path: Path) -> None:
    """With a torch on the path that refuses to be imported: nothing tries it, not even inside `try`."""
    (tmp_path / "torch.py").write_text("import os; os._exit(9)")
    assert heavy_modules(IMPORT, tmp_path) == set()
    assert heavy_modules(HELP, tmp_path) == set()
