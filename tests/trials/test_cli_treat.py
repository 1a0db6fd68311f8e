from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gobrrr
from gobrrr import cli
from gobrrr.model.treated import Treated
from gobrrr.report import json as saved
from gobrrr.trials import treat as home
from gobrrr.trials.choosing import SearchOptions
from gobrrr.trials.example import EXAMPLE
from gobrrr.trials.ledger import Ledger
from tests.trials.benches import FakeBench, candidate

Run = Any


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(list(arguments))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A search without steps, and what it was asked for."""
    calls: list[Any] = []

    def treat(target: Any, options: SearchOptions, **more: Any) -> Treated:
        calls.append((target, options, more))
        ways = [candidate("a", 0.4), candidate("b", 0.3)]

        def interrupt(way: str) -> None:
            if way == "b" and options.budget_s == 7:
                raise KeyboardInterrupt

        bench = FakeBench(ways, saved={"a": 0.3}, before_trial=interrupt)
        return home.run(bench, target, options, Ledger.open(more["ledger"]))

    monkeypatch.setattr(home, "treat", treat)
    return calls


def refused(answer: tuple[int, str, str]) -> str:
    status, out, err = answer
    assert (status, out) == (2, "")
    assert re.fullmatch(r"gobrrr: [^\n]+\n", err)
    return err


def test_the_options_reach_the_search(run: Run, asked: list[Any], tmp_path: Path) -> None:
    status, out, _ = run(
        "treat", "w.py:workload", "--budget", "50", "--only", "a, b", "--without", "b", "--ledger", str(tmp_path),
        "--again", "--limit", "9",
    )  # fmt: skip
    assert status == 0
    ((target, options, more),) = asked
    assert target == "w.py:workload"
    assert options == SearchOptions(budget_s=50, only=("a", "b"), without=("b",), again=True)
    assert (more["ledger"], more["limit_s"]) == (tmp_path, 9)
    assert "verdict" in out


def test_json_is_the_whole_record(run: Run, asked: list[Any], tmp_path: Path) -> None:
    status, out, _ = run("treat", "w.py:workload", "--json", "--ledger", str(tmp_path))
    assert status == 0
    assert json.loads(out)["kept"] == ["a"]
    assert json.loads(out)["trials"][0]["expected_ns"] == pytest.approx(4e5)


def test_the_saved_diagnosis_has_the_trials(run: Run, asked: list[Any], tmp_path: Path) -> None:
    file, page = tmp_path / "d.json", tmp_path / "d.html"
    assert run("treat", "w.py:w", "--save", str(file), "--html", str(page), "--ledger", str(tmp_path / "l"))[0] == 0
    assert [one.treatment for one in saved.load(file).trials] == ["a", "b"]
    assert "Tried and measured" in page.read_text()
    assert "Tried" in run("report", str(file))[1]


def test_an_interrupt_prints_what_is_known_and_ends_with_130(run: Run, asked: list[Any], tmp_path: Path) -> None:
    status, out, _ = run("treat", "w.py:workload", "--budget", "7", "--ledger", str(tmp_path))
    assert status == 130
    assert "Stopped: interrupted" in out


def test_the_ledger_shows_errors_by_treatment(run: Run, asked: list[Any], tmp_path: Path) -> None:
    run("treat", "w.py:workload", "--ledger", str(tmp_path))
    status, out, _ = run("ledger", str(tmp_path))
    assert status == 0
    assert "2 trials" in " ".join(out.split())
    assert "again later" not in out
    run("treat", "w.py:workload", "--again", "--ledger", str(tmp_path))
    _, again, _ = run("ledger", str(tmp_path))
    assert "4 trials, 2 of them repeated later and not counted below" in " ".join(again.split())
    assert re.search(r"^ a +1 +1 ", again, re.MULTILINE)
    assert re.search(r"^ a +1 +1 +10 +10 .* 0\.75$", out, re.MULTILINE)
    assert json.loads(run("ledger", "--json", str(tmp_path))[1])["trials"] == 4
    assert "No trial is kept here yet" in run("ledger", str(tmp_path / "none"))[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a step, FILE.py:NAME"),
        (["nothing.json"], "no such file"),
        (["w.py:workload", "--budget", "0"], "budget is a number of seconds above 0"),
        (["w.py:workload", "--budget", "nan"], "budget is a number of seconds above 0"),
        (["w.py:workload", "--limit", "-1"], "limit is a number of seconds above 0"),
        (["w.py:workload", "--save", "/none/x.json"], "its folder does not exist"),
        (["w.py:workload", "--budget", "soon"], "see: gobrrr treat --help"),
    ],
)
def test_a_wrong_call_is_said_in_one_line(run: Run, arguments: list[str], said: str) -> None:
    assert said in refused(run("treat", *arguments))


def test_a_file_without_a_name_asks_for_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text("")
    assert "w.py: name a step as" in refused(run("treat", str(tmp_path / "w.py")))


def test_a_ledger_that_is_a_file_does_not_end_the_run(run: Run, asked: list[Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, out, _ = run("treat", "w.py:workload", "--ledger", str(tmp_path / "file"))
    assert status == 0
    assert "trials are not kept in" in out
    assert str(tmp_path)[:20] in out


@pytest.mark.parametrize("command", ["treat", "diagnose", "predict", "run", "run -m"])
@pytest.mark.parametrize("how", ["same", "link", "hard link"])
def test_no_answer_is_written_over_the_file_of_the_step(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    file = tmp_path / "package" / "w.py"
    file.write_text("def step(): pass\n")
    other = file if how == "same" else tmp_path / "other"
    if other is not file:
        (other.symlink_to if how == "link" else other.hardlink_to)(file)
    for option in ("--html", "--save"):
        if command.startswith("run"):
            script = "package/w.py" if command == "run" else "package.w"
            answers = [run(*command.split()[:1], option, str(other), *command.split()[1:], script)]
        else:
            answers = [run(command, f"{home}:step", option, str(other)) for home in ("package/w.py", "package.w")]
        for answer in answers:
            assert "would be overwritten" in refused(answer)
    assert file.read_text() == "def step(): pass\n"


def test_where_the_answer_cannot_be_printed_nothing_is_run(run: Run, asked: list[Any], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        status = cli.main(["treat", "w.py:workload", "--ledger", str(tmp_path)])
    assert status == 2
    assert asked == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": "30"}, "budget is a number of seconds above 0, not '30'"),
        ({"budget": True}, "budget is a number of seconds above 0, not True"),
        ({"limit": [1]}, "limit is a number of seconds above 0"),
        ({"only": 5}, "only is a list of names, not 5"),
        ({"without": [1]}, "without is a list of names"),
        ({"ledger": 5}, "ledger is a folder, not 5"),
    ],
)
def test_a_wrong_argument_is_said_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(gobrrr.UsageError, match=re.escape(said)) as caught:
        gobrrr.treat("w.py:workload", **options)
    assert "\n" not in str(caught.value)


def test_a_ledger_that_is_a_file_is_refused_where_it_is_to_be_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is not a folder" in refused(run("ledger", str(tmp_path / "file")))
    with pytest.raises(gobrrr.UsageError, match="folder is a folder, not 5"):
        gobrrr.api.ledger(5)  # type: ignore[arg-type]


def test_the_example_is_a_file_that_compiles(run: Run) -> None:
    status, out, _ = run("treat", "--example")
    assert status == 0
    assert out.strip() == EXAMPLE.strip()
    compile(out, "workload.py", "exec")
    assert max(map(len, out.splitlines())) <= 120


def test_the_process_that_searches_loads_no_torch() -> None:
    code = "import sys, gobrrr.trials.treat, gobrrr.report.treated; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch" not in done.stdout.split()


OPTIMIZER = """
import torch
import gobrrr
from gobrrr.doors import live

torch.set_num_threads(1)
live._measure_once = lambda stages: None  # the tests' cache is empty, and a measurement takes half a minute

def workload():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(30)))
    return gobrrr.Workload(
        model=model, inputs=(torch.randn(4, 8),), loss=lambda y: y.square().mean(),
        optimizer=torch.optim.AdamW(model.parameters(), foreach=False),
    )
"""


@pytest.mark.slow  # in this process, and quickly: tests/trials/test_for_real.py
@pytest.mark.torch
def test_a_per_parameter_optimizer_is_treated_for_real(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "w.py").write_text(OPTIMIZER)
    arguments = [
        "treat", f"{tmp_path}/w.py:workload", "--only", "fused-optimizer", "--without", "fused-optimizer:foreach",
        "--budget", "150", "--ledger", str(tmp_path / "l"), "--json",
    ]  # fmt: skip
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    found = json.loads(out)
    first = found["trials"][0]
    assert first["way"] == "fused-optimizer"
    assert first["numerics"]["ok"]
    if first["verdict"] != "inconclusive":  # a machine that does other work meanwhile
        assert first["verdict"] == "helped", first["why"]
        assert found["step_after_ns"] < 0.7 * found["step_before_ns"]
        assert "fused=True" in found["code"]
        assert found["after"]["unprofiled_wall_ns"]["value"] > 0


@pytest.mark.torch
def test_a_workload_is_treated_in_this_process_and_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.doors import live

    monkeypatch.setattr(live, "_measure_once", lambda stages: None)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    workload = gobrrr.Workload(model=model, inputs=(torch.ones(2, 4),), loss=lambda y: y.sum(), optimizer=optimizer)
    found = gobrrr.treat(workload, dry_run=True, ledger=tmp_path)
    assert any("in this process" in one for one in found.notes)
    assert found.trials == ()
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert optimizer.param_groups[0]["foreach"] is False


@pytest.mark.torch
def test_a_step_that_is_called_to_see_what_it_is_leaves_everything_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.doors import live

    monkeypatch.setattr(live, "_measure_once", lambda stages: None)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    calls = []

    def step() -> Any:
        calls.append(1)
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()

    before = {name: one.clone() for name, one in model.state_dict().items()}
    random = torch.get_rng_state()
    found = gobrrr.treat(step, dry_run=True, ledger=tmp_path)
    assert calls == []  # a list that it reaches is put back as well
    assert found.step_before_ns
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert not optimizer.state
    assert model.weight.grad is None
    assert torch.equal(torch.get_rng_state(), random)
    assert not any("was not put back" in one for one in found.notes)


@pytest.mark.torch
def test_a_step_of_which_nothing_is_reached_says_that_it_ran() -> None:
    pytest.importorskip("torch")
    from gobrrr.trials.bench import put_back

    with put_back(lambda: None) as notes:
        assert ["was not put back" in one for one in notes] == [True]


@pytest.mark.torch
def test_an_optimizer_without_loss_and_step_is_said_to_be_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.doors import live

    monkeypatch.setattr(live, "_measure_once", lambda stages: None)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = gobrrr.treat(gobrrr.Workload(model=model, inputs=(torch.ones(2, 4),), optimizer=optimizer), dry_run=True)
    assert any("only the forward pass was treated" in one for one in found.notes)
