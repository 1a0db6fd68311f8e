"""`gobrrr machine` and `gobrrr lab` where torch is missing: one line, exit status 2; nothing imports torch before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gobrrr import cli

NO_TORCH = "gobrrr: measuring needs torch, which is not installed here: pip install torch\n"


@pytest.mark.parametrize(
    "arguments",
    [["machine"], ["machine", "--device", "cpu"], ["machine", "--last"], ["lab", "--all"], ["lab", "fusion"]],
)
def test_without_torch(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", NO_TORCH)


def test_a_wrong_experiment_is_said_before_torch_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["lab", "nope"]) == 2
    assert "'nope' is no experiment; there are intensity, fusion" in capsys.readouterr().err


def test_the_list_of_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    assert lines[0].startswith("intensity")


def test_importing_what_measures_does_not_import_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os; os._exit(9)")
    names = "gobrrr.hardware.measure, gobrrr.lab, gobrrr.report.machine, gobrrr.report.lab"
    modules = "', '".join(
        f"gobrrr.lab.{one}"
        for one in [
            "intensity",
            "fusion",
            "activations",
            "operators",
            "overhead",
            "scaling",
            "utilization",
            "remat",
            "tensorcores",
        ]
    )
    script = f"import importlib, {names}\nfor one in ('{modules}'): importlib.import_module(one)"
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", ""), *sys.path]))
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr
