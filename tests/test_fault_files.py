"""The inputs that once got a wrong answer, as they were handed over, with the right ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gobrrr import api, cli
from tests.conftest import ROOT

FAULTS = ROOT.parent / "shared" / "faults"
FILES = FAULTS / "files"
pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason="the inputs are not beside this checkout")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a refusal."""
    assert cli.main(list(arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.slow
def test_one_launch_of_25_000_kernels_is_diagnosed(tmp_path: Path) -> None:
    made = subprocess.run([sys.executable, FILES / "big_graph_launch.py"], capture_output=True, check=True).stdout
    file = tmp_path / "launch.json"
    file.write_bytes(made)
    found = api.diagnose(str(file))
    # 5 us each
    assert (found.devices[0].kernels, found.devices[0].busy_total_ns) == (25_000, 25_000 * 5_000)


def test_a_trace_with_work_of_no_length_is_diagnosed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diagnose", str(FILES / "zerodivision_c03.json")]) == 0
    assert "could not be checked: " not in capsys.readouterr().out


def test_an_archive_of_two_traces_is_two_ranks() -> None:
    assert api.diagnose(str(FILES / "two_ranks" / "two.tar")).ranks == 2


def test_two_traces_one_after_the_other_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "diagnose", str(FILES / "two_ranks" / "concatenated.json.gz"))
    assert "several traces" in said


@pytest.mark.parametrize("name", ["report_negative_budget.json", "report_timeline_index.json"])
def test_a_damaged_diagnosis_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "damaged" in refused(capsys, "report", str(FILES / name))


def ran(folder: Path, script: str, save: str) -> subprocess.CompletedProcess[str]:
    """`gobrrr run --save` of a script that changes or removes folders, in `folder`."""
    for file in (FILES / "run_save").glob("*.py"):
        shutil.copy(file, folder)
    command = [sys.executable, "-m", "gobrrr", "run", "--save", save, script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.torch
def test_a_relative_file_is_that_of_the_call_and_the_exit_status_the_script_s(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = ran(tmp_path, "chdir.py", "answer.json")
    assert done.returncode == 4
    assert (tmp_path / "answer.json").is_file()


@pytest.mark.slow
@pytest.mark.torch
def test_the_answer_is_shown_where_its_folder_is_gone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "out").mkdir()
    done = ran(tmp_path, "rmdir.py", "out/d.json")
    assert done.returncode == 0
    assert "certainty" in done.stderr
    assert "out/d.json" in done.stderr


@pytest.mark.slow
@pytest.mark.torch
def test_a_mode_of_the_program_s_sees_no_operation_of_ours() -> None:
    pytest.importorskip("torch")
    file = FILES / "dispatch_mode_sees_gobrrr.py"
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert "MORE BY 0" in done.stdout


@pytest.mark.parametrize(
    ("name", "most_ms"),
    [("05_attention_in_front_of_9000", 36.0), ("06_attention_behind_host_work", 210.0)],
)
def test_no_more_is_saved_than_the_attention_takes(name: str, most_ms: float) -> None:
    found = api.diagnose(str(FAULTS / "trace" / f"{name}.json.gz"))
    saved = {one.treatment: one.predicted_saving_ns[1] for one in found.prescriptions if one.finding == "M02"}
    assert saved
    assert max(saved.values()) <= most_ms * 1e6


def test_first_uses_are_left_out_of_the_step() -> None:
    """170 launches at 20 us; the rest of the 548 ms are nine first uses of 60 ms."""
    found = api.diagnose(str(FAULTS / "trace" / "04_first_use_loading.json.gz"))
    (launching,) = [one.ns for one in found.budget if one.cause == "launching"]
    assert launching == pytest.approx(170 * 20e3, rel=0.01)
    assert max(one.predicted_saving_ns[1] for one in found.prescriptions) < 170 * (20e3 + 10e3)
    assert any(one.startswith("9 first uses") for one in found.caveats)
