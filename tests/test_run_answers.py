"""What becomes of the answer of `gobrrr run`: shown first, then written, and the script's exit status stands."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr import api
from gobrrr.cli.entry import main
from gobrrr.doors.running import ScriptOutcome
from gobrrr.report import output
from tests.report import samples

STATUS = 4


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the call's own with a script in it; the script never runs, `ends` says what it would do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    return tmp_path


def ends(monkeypatch: pytest.MonkeyPatch, does: Callable[[], object] = lambda: None) -> None:
    def run(*_: object, **__: object) -> ScriptOutcome:
        does()
        return ScriptOutcome(status=STATUS, diagnosis=samples.overhead())

    monkeypatch.setattr(api, "run", run)


def test_relative_paths_are_those_of_the_call(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = in_folder / "other"
    other.mkdir()
    ends(monkeypatch, lambda: os.chdir(other))
    assert main(["run", "--save", "d.json", "--html", "d.html", "train.py"]) == STATUS
    assert sorted(one.name for one in in_folder.iterdir()) == ["d.html", "d.json", "other", "train.py"]
    assert list(other.iterdir()) == []


def test_the_answer_is_shown_and_the_status_is_the_scripts_whatever_is_written(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = in_folder / "out"
    out.mkdir()
    ends(monkeypatch, out.rmdir)
    assert main(["run", "--save", "out/d.json", "--html", "page.html", "train.py"]) == STATUS
    said = capsys.readouterr().err
    shown, line = said.rstrip("\n").rsplit("\n", 1)
    assert "OVERHEAD" in shown.upper()
    assert line.startswith("gobrrr: ")
    assert "d.json: its folder does not exist" in line
    assert (in_folder / "page.html").exists()  # what can be written is


def test_json_is_printed_where_the_file_fails(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (in_folder / "out").mkdir()
    ends(monkeypatch, (in_folder / "out").rmdir)
    assert main(["run", "--json", "--save", "out/d.json", "train.py"]) == STATUS
    assert json.loads(capfdbinary.readouterr().out)["format"]


def test_a_diagnosis_is_shown_although_its_file_fails(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = samples.overhead()
    monkeypatch.setattr(api, "load", lambda _: ((in_folder / "out").rmdir(), found)[1])
    (in_folder / "out").mkdir()
    assert main(["report", "--html", "out/d.html", "d.json"]) == 2
    said = capsys.readouterr()
    assert "OVERHEAD" in said.out.upper()
    assert said.err.startswith("gobrrr: ")


def test_streams_that_the_script_closed_are_written_to_again(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    ends(monkeypatch, lambda: (sys.stdout.close(), sys.stderr.close()))
    assert main(["run", "--save", "d.json", "train.py"]) == STATUS
    assert (in_folder / "d.json").exists()
    sys.stdout.close()
    sys.stderr.close()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_lines_on_a_terminal_and_nothing_elsewhere() -> None:
    screen = Terminal()
    say = output.aside(screen)
    assert say is not None
    for line in ("warming up", "warming up", "profiling"):
        say(line)
    assert screen.getvalue() == "\nwarming up\n\nprofiling\n"
    screen.close()
    say("the script has closed it")
    assert output.aside(io.StringIO()) is None
    assert output.aside(screen) is None
    assert output.aside(None) is None
