from __future__ import annotations

import gzip
import io
import json as stdlib_json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gobrrr import api, cli
from gobrrr.cli.diagnosing import _misplaced
from gobrrr.doors import live
from gobrrr.doors.targets import names_in
from gobrrr.errors import InputError
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report import catalogues, json, terminal
from tests.report import samples
from tests.test_api import CONDITIONS, TREATMENTS
from tests.traces import Trace

Run = Any


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line and returns its exit status, standard output and standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(list(arguments))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A trace whose diagnosis is at hand."""
    path = tmp_path / "train_step.json"
    path.write_text("{}")
    monkeypatch.setattr(api, "diagnose", lambda *_, **__: samples.overhead())
    return str(path)


def refused(answer: tuple[int, str, str]) -> str:
    """The one line of a refusal: exit status 2, nothing on standard output."""
    status, out, err = answer
    assert (status, out) == (2, "")
    assert re.fullmatch(r"gobrrr: [^\n]+\n", err)
    return err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["explain", "O01"], ["machine", "h100", "--json"]], ids=" ".join)
def test_a_full_output_is_said_in_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "gobrrr", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"gobrrr: the output can't be written: [^\n]+\n", done.stderr)


def test_help_tells_a_newcomer_what_to_try(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    for part in ("compute, memory bandwidth or overhead", "gobrrr demo", "gobrrr diagnose", "gobrrr explain O01"):
        assert part in out
    assert max(map(len, out.splitlines())) <= 80
    assert "..." not in out.split("Commands:")[1]
    assert run()[1].split() == out.split()


@pytest.mark.parametrize("command", ["diagnose", "report", "explain", "machine", "lab", "demo"])
def test_every_command_has_help(run: Run, command: str) -> None:
    status, out, _ = run(command, "--help")
    assert status == 0
    assert f"Usage: gobrrr {command}" in out
    assert command in run("--help")[1]


def test_version(run: Run) -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert re.fullmatch(r"gobrrr \d\S*\n", out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diagnose"], "Missing argument 'TARGET'; see: gobrrr diagnose --help"),
        (["nope"], "No such command 'nope'"),
        (["diagnose", "x", "--nope"], "No such option: --nope"),
        (["diagnose", "x", "--width", "wide"], "--width takes a whole number"),
        (["diagnose", "no/such/trace.json"], "no such file or folder"),
        (["diagnose", "train.py:step"], "train.py: no such file"),
        (["diagnose", "train.py"], "train.py: no such file"),
        (["report", "no.json"], "no such file"),
        (["machine", "abacus"], "unknown device 'abacus'"),
    ],
)
def test_a_users_mistake_is_one_line(run: Run, arguments: list[str], message: str) -> None:
    assert message in refused(run(*arguments))


def test_diagnose_prints_the_answer(run: Run, trace: str) -> None:
    assert run("diagnose", trace) == (0, terminal.render(samples.overhead()) + "\n", "")
    assert run("diagnose", trace, "--width", "100")[1] == terminal.render(samples.overhead(), width=100) + "\n"


def test_diagnose_prints_json(run: Run, trace: str) -> None:
    status, out, _ = run("diagnose", trace, "--json")
    assert status == 0
    assert out.encode() == json.to_json(samples.overhead())


def test_several_outputs_at_once(run: Run, trace: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    status, out, _ = run("diagnose", trace, "--json", "--save", str(saved))
    assert status == 0
    assert saved.read_bytes() == out.encode()
    assert run("diagnose", trace, "--save", str(saved))[1] == terminal.render(samples.overhead()) + "\n"


def test_quiet_is_one_line(run: Run, trace: str) -> None:
    assert run("diagnose", trace, "--quiet")[1] == "OVERHEAD-BOUND (certainty: high)\n"


def test_options_reach_the_library(run: Run, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def diagnose(target: str, **options: Any) -> Diagnosis:
        seen.update(options, target=target)
        return samples.memory()

    monkeypatch.setattr(api, "diagnose", diagnose)
    run("diagnose", trace, "--on", "h100", "--stacks")
    assert seen == {"target": trace, "on": "h100", "python": True, "scale": False, "progress": None}


def test_a_save_that_can_not_work_is_refused_before_the_work(run: Run, trace: str, monkeypatch: Any) -> None:
    def never(*_: object, **__: object) -> Diagnosis:
        raise AssertionError("the work was done")

    monkeypatch.setattr(api, "diagnose", never)
    assert "does not exist" in refused(run("diagnose", trace, "--save", "/no/such/folder/x.json"))


def test_standard_input_must_not_be_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert "standard input is a terminal" in refused(run("diagnose", "-"))


def test_report_shows_a_saved_diagnosis(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    json.save(samples.memory(), saved)
    assert run("report", str(saved))[1] == terminal.render(samples.memory()) + "\n"
    assert run("report", str(saved), "--json")[1].encode() == saved.read_bytes()


@pytest.fixture
def _catalogues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogues, "_catalogues", lambda: (CONDITIONS, TREATMENTS))


def test_a_trace_without_a_command_is_told_the_command(run: Run, trace: str) -> None:
    status, out, err = run(trace)
    assert (status, out) == (2, "")
    assert f"gobrrr diagnose {trace}" in err


@pytest.mark.usefixtures("_catalogues")
def test_explain(run: Run) -> None:
    assert run("explain", "O01")[1] == "# O01: launch-bound\n\nThe device waits for launches.\n"
    listed = run("explain")[1]
    assert all(part in listed for part in ("O01", "O02", "launch-bound", "cuda_graph"))
    assert "did you mean O01?" in refused(run("explain", "O1"))


@pytest.mark.usefixtures("_catalogues")
def test_explain_is_laid_out_in_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(cli.output, "console", lambda: Console(file=stream, force_terminal=True, width=80))
    assert run("explain", "cuda_graph")[0] == 0
    assert "\x1b[" in stream.getvalue()
    assert "```" not in stream.getvalue()


def test_machine(run: Run) -> None:
    names = run("machine", "--list")[1].splitlines()
    assert any("H100" in name for name in names)
    assert stdlib_json.loads(run("machine", "--list", "--json")[1]) == names
    assert "memory bandwidth" in run("machine", "h100")[1]
    assert stdlib_json.loads(run("machine", "h100", "--json")[1])["memory_bytes_per_s"]["value"] > 1e12


def test_demo(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "diagnose", lambda *_, **__: samples.overhead())
    monkeypatch.setattr(live, "has_torch", lambda: False)
    status, out, _ = run("demo")
    assert status == 0
    assert "torch is not installed here" in out
    assert out.count("OVERHEAD-BOUND") == len(cli.DEMO)
    assert all(name in out for name in cli.DEMO)
    assert run("demo", "--all")[1].count("OVERHEAD-BOUND") > len(cli.DEMO)


def test_the_demo_ends_with_a_step_of_its_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "diagnose", lambda *_, **__: samples.overhead())
    monkeypatch.setattr(live, "has_torch", lambda: True)
    monkeypatch.setattr(live, "diagnose_demo", lambda _: samples.memory())
    assert "MEMORY-BOUND" in run("demo")[1]


def test_a_shipped_trace_from_file_to_screen(run: Run, h100: Path, tmp_path: Path) -> None:
    trace, saved = str(h100 / "mlp_tiny.faulty.json.gz"), tmp_path / "saved.json"
    status, out, err = run("diagnose", trace, "--save", str(saved))
    assert (status, err) == (0, "")
    assert "OVERHEAD-BOUND" in out
    assert len(out.splitlines()) <= terminal.SCREEN_LINES
    assert run("report", str(saved))[1] == out
    assert run("diagnose", trace, "--json")[1].encode() == saved.read_bytes()


def test_a_bug_is_one_line_without_a_traceback(run: Run, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Diagnosis:
        raise KeyError("x\ny")

    monkeypatch.setattr(api, "diagnose", fail)
    status, _, err = run("diagnose", trace)
    assert status == 70
    assert err.startswith("gobrrr: internal error: KeyError: ")
    assert err.count("\n") == 1
    assert "Traceback" in run("diagnose", trace, "--debug")[2]
    assert "Traceback" in run("--debug", "diagnose", trace)[2]
    assert "Traceback" not in run("diagnose", trace)[2]  # one call says nothing of the next


def test_an_interrupt_is_quiet(run: Run, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> Diagnosis:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "diagnose", interrupt)
    assert run("diagnose", trace) == (130, "", "")


def test_an_errors_message_is_safe_to_print(run: Run, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Diagnosis:
        raise InputError("bad \x1b[2J\nname \ud800")

    monkeypatch.setattr(api, "diagnose", refuse)
    assert refused(run("diagnose", trace)) == "gobrrr: bad name \ufffd\n"


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gobrrr", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently")
def test_a_reader_that_leaves_is_no_error() -> None:
    with process("machine", "--list") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_an_output_without_unicode_gets_ascii() -> None:
    with process("machine", "h100", env={**os.environ, "PYTHONIOENCODING": "ascii"}) as running:
        out, err = running.communicate()
    assert (running.returncode, err) == (0, b"")
    assert out.isascii()


def test_help_imports_nothing_heavy() -> None:
    script = "import sys; from gobrrr import cli; cli.main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numpy", "rich", "msgspec", "torch", "fsspec", "asyncio"} & set(done.stdout.split())


# -- what a change would give ------------------------------------------------------------


@pytest.fixture
def tiny(h100: Path) -> str:
    """A shipped trace of a step that its launches bound."""
    return str(h100 / "mlp_tiny.faulty.json.gz")


def test_what_if_follows_the_answer(run: Run, tiny: str) -> None:
    plain = run("diagnose", tiny)[1]
    status, out, err = run("diagnose", tiny, "--what-if", "cuda-graph")
    assert (status, err) == (0, "")
    assert out.startswith(plain.rstrip("\n"))
    assert "What if: cuda-graph" in out.removeprefix(plain)
    again = run("diagnose", tiny, "--what-if", "larger-batch", "--what-if", "cuda-graph", "--json")
    assert stdlib_json.loads(again[1])["what_ifs"][-1]["treatments"] == ["larger-batch", "cuda-graph"]
    nothing = run("diagnose", tiny, "--what-if", "")
    assert nothing[0] == 0
    assert "What if: the step as it is" in nothing[1]


def test_what_if_in_json_has_the_record(run: Run, tiny: str) -> None:
    status, out, err = run("diagnose", tiny, "--what-if", " compile, larger-batch ,", "--on", "b200", "--json")
    assert (status, err) == (0, "")
    found = stdlib_json.loads(out)
    first, asked = found["what_ifs"]
    assert (first["treatments"], first["machine"]) == ([], None)
    assert asked["treatments"] == ["compile", "larger-batch"]
    assert "B200" in asked["machine"]
    assert asked["low_ns"] <= asked["step_ns"] <= asked["high_ns"]
    assert set(found["what_if_roofs"]) == {asked["machine"]}
    assert found["machines"] == []
    # no treatment is asked for: one record, that of the step as it is
    assert stdlib_json.loads(run("diagnose", tiny, "--what-if", ",,", "--json")[1])["what_ifs"][-1]["treatments"] == []


def test_on_another_machine_the_answer_is_that_of_the_step_there(run: Run, tiny: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    status, out, err = run("diagnose", tiny, "--on", "b200", "--save", str(saved))
    assert (status, err) == (0, "")
    assert "B200" in out
    assert len(out.splitlines()) <= terminal.SCREEN_LINES
    found = stdlib_json.loads(saved.read_bytes())
    assert [one["machine"].split("-")[0] for one in found["machines"]] == ["H100", "B200"]
    assert run("report", str(saved))[1] == out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--what-if", "turbo"], "no treatment is called turbo; those for this step: cuda-graph"),
        (["--what-if", "cuda-graph,CUDA-GRAPH"], "no treatment is called CUDA-GRAPH"),
        (["--what-if", "cuda-graph", "--on", "abacus"], "unknown device 'abacus'"),
        (["--what-if"], "requires an argument"),
        (["--replayed", "no/such/folder/out.json"], "does not exist"),
        (["--what-if", "", "--html", "no/such/folder/page.html"], "does not exist"),
    ],
)
def test_a_mistake_about_a_change_is_one_line(run: Run, tiny: str, arguments: list[str], message: str) -> None:
    assert message in refused(run("diagnose", tiny, *arguments))


def test_a_trace_that_can_not_be_replayed_is_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    trace = Trace(shapes=False)
    with trace.step(0):
        trace.host("aten::mm", 100.0)
    path = str(trace.write(tmp_path))
    assert "no device work to replay" in refused(run("diagnose", path, "--what-if", "compile"))
    out = tmp_path / "out.json"
    assert "no device work to replay" in refused(run("diagnose", path, "--replayed", str(out)))
    assert not out.exists()


@pytest.mark.parametrize("name", ["out.json.gz", "out.json"])
def test_the_replayed_timeline_is_a_trace(run: Run, tiny: str, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    status, _, err = run("diagnose", tiny, "--what-if", "cuda-graph", "--replayed", str(out), "--quiet")
    assert (status, err) == (0, "")
    data = gzip.decompress(out.read_bytes()) if name.endswith(".gz") else out.read_bytes()
    events = stdlib_json.loads(data)["traceEvents"]
    assert {"X", "M", "s", "f"} == {one["ph"] for one in events}
    assert run("diagnose", str(out), "--quiet")[0] == 0


def test_the_replayed_timeline_alone_is_that_of_the_step_as_it_is(run: Run, tiny: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert "What if: the step as it is" in run("diagnose", tiny, "--replayed", str(out))[1]
    assert stdlib_json.loads(out.read_bytes())["gobrrr"]["change"] == "as it is"


def test_the_page_has_the_panel_and_what_was_asked_for(run: Run, tiny: str, tmp_path: Path) -> None:
    page, saved = tmp_path / "page.html", tmp_path / "saved.json"
    arguments = ["--what-if", "larger-batch", "--html", str(page), "--save", str(saved), "--quiet"]
    assert run("diagnose", tiny, *arguments)[0] == 0
    rows = [(one["treatments"], one["machine"]) for one in stdlib_json.loads(saved.read_bytes())["what_ifs"]]
    assert rows[-1] == (["larger-batch"], None)
    assert (["cuda-graph"], None) in rows
    assert len({machine for _, machine in rows}) > 2
    text = page.read_text(encoding="utf-8")
    assert text.count("cuda-graph") > 1
    assert "larger-batch" in text
    assert [one["treatments"] for one in stdlib_json.loads(saved.read_bytes())["what_ifs"] if one["asked"]] == [
        ["larger-batch"]
    ]
    assert '<details class="folded" open' in text  # the panel shows what was asked for
    shown = run("report", str(saved))[1]
    assert "What if: larger-batch" in shown


def test_a_folder_of_two_ranks_is_asked_together(run: Run, h100_extra: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(h100_extra / f"ddp_good.rank{rank}.json.gz", tmp_path)
    status, out, err = run("diagnose", str(tmp_path), "--what-if", "cuda-graph", "--json")
    assert (status, err) == (0, "")
    found = stdlib_json.loads(out)
    assert found["ranks"] == 2
    first, asked = found["what_ifs"]
    assert first["step_ns"] == pytest.approx(found["unprofiled_wall_ns"]["value"])
    assert asked["step_ns"] < first["step_ns"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["treat", "w.py:step", "--budget", "soon"], "--budget takes a number of seconds; see: gobrrr treat --help"),
        (["diagnose", "t.json", "--width", "wide"], "--width takes a whole number; see: gobrrr diagnose --help"),
    ],
)
def test_what_is_no_number_is_said_plainly(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.strip() == f"gobrrr: {said}"


def test_a_file_without_a_name_is_told_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "w.py"
    text = "import gobrrr\ndef one(x): ...\ndef _own(): ...\ndef two(x=1, *, y=2): ...\nclass C: ...\n"
    file.write_text(f"{text}w = gobrrr.Workload(step=two)\nn = 3\n")
    assert names_in(str(file)) == ["w", "two", "one"]
    for command in (["treat"], ["predict", "--on", "h100"], ["count"], ["diagnose"]):
        assert cli.main([*command, str(file)]) == 2
        assert f"name one of its callables: {file}:w, {file}:two, {file}:one" in capsys.readouterr().err
    file.write_text("x = 1\n")
    assert cli.main(["treat", str(file)]) == 2
    assert "no function or Workload" in capsys.readouterr().err


def test_what_ends_a_run_is_wrapped_on_a_terminal_and_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for terminal_, most in ((True, 80), (False, 10_000)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda there=terminal_: there)
        assert cli.main(["machine", "nosuch"]) == 2
        said = capsys.readouterr().err.rstrip("\n").split("\n")
        assert (len(said) > 1) is terminal_
        assert max(map(len, said)) <= most
        assert " ".join(" ".join(said).split()).startswith("gobrrr: unknown device 'nosuch'; known: ")


@pytest.mark.parametrize(
    ("given", "said"), [(["--save", "F"], "--save"), (["--html=p.html"], "--html=p.html"), (["--lr", "1"], "")]
)
def test_an_option_behind_the_script_is_the_script_s_own_and_that_is_said(
    capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    _misplaced(["train.py", *given], quiet=False)
    told = f"{said} was passed to train.py: put options for gobrrr before the script" if said else ""
    assert " ".join(capsys.readouterr().err.split()) == told
