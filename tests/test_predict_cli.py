"""`gobrrr predict` and its words in Python: what is printed runs as printed, and a mistake is one line."""

from __future__ import annotations

import builtins
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import gobrrr
from gobrrr import api, cli
from gobrrr.errors import InputError, UnknownDeviceError, UsageError
from gobrrr.hardware import cache, dispatch
from gobrrr.model.measured import Environment, MeasuredFigure, Measurement, Quantity
from gobrrr.report import prediction, terminal
from tests.test_contract import CHECKER, checker

Run = Any


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line and returns its exit status, standard output and standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(list(arguments))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


def refused(answer: tuple[int, str, str]) -> str:
    """The one line of a refusal: exit status 2, nothing on standard output."""
    status, out, err = answer
    assert (status, out) == (2, "")
    assert re.fullmatch(r"gobrrr: [^\n]+\n", err)
    return err


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a workload file and returns its path."""

    def made(text: str, name: str = "work.py") -> str:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    return made


SMALL = """
    import torch
    import gobrrr

    LAYERS, WIDTH = 3, 256

    def build(device="cuda"):
        return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).to(device)

    def workload():
        model = build()
        x = torch.randn(64, WIDTH, device="cuda")

        def step():
            model(x).sum().backward()

        return gobrrr.Workload(model=model, step=step)

    def forward():
        model = build()
        return gobrrr.Workload(model=model, inputs=(torch.randn(64, WIDTH, device="cuda"),))

    def direct():
        a = torch.randn(64, 256, device="cuda")
        (a @ a.t()).sum()

    class Holder:
        @staticmethod
        def step():
            direct()

    def nothing():
        pass

    def broken():
        a = torch.randn(4, 5, device="cuda")
        a @ a

    def waits():
        a = torch.randn(64, 64, device="cuda")
        if (a @ a).sum().item() > 0:
            a.add_(1)

    not_callable = 3
"""
FORWARD_FLOP = 3 * (2 * 64 * 256 * 256)
"""Three layers; the bias is added inside the product."""


# Without torch


def test_the_example_is_printed(run: Run):
    status, out, err = run("predict", "--example")
    assert (status, err) == (0, "")
    assert out.rstrip() == prediction.PREDICT_EXAMPLE.rstrip()


def test_a_target_is_needed(run: Run):
    assert "--example" in refused(run("predict"))


def test_an_unknown_device_is_refused_before_the_step_runs(run: Run, write: Any):
    for on in ("h1000", "h100,nope"):
        assert "unknown device" in refused(run("predict", write("raise RuntimeError"), "--on", on))
    with pytest.raises(UnknownDeviceError):
        api.predict(lambda: None, on="rtx 9999")


@pytest.mark.parametrize("on", ["", ",", " , "])
def test_no_device_is_refused(run: Run, write: Any, on: str):
    assert "names no machine" in refused(run("predict", write("x = 1") + ":x", "--on", on))


def test_a_step_has_to_be_one():
    for wrong in (3, None, [1]):
        with pytest.raises(UsageError, match="a step is a callable"):
            api.predict(wrong)  # type: ignore[arg-type]


def test_a_named_step_takes_no_arguments():
    with pytest.raises(UsageError, match="takes no arguments"):
        api.predict("work.py:step", 3)


def test_calibrating_needs_a_measurement(run: Run, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "gobrrr machine" in refused(run("predict", write(SMALL) + ":workload", "--calibrate"))


@pytest.mark.torch
def test_calibrating_takes_what_was_measured(run: Run, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An H100 whose memory measured 3.0 TB/s and whose host takes twice the reference's time."""
    need_torch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    reference = dispatch.load().reference_s
    entries = [entry("dispatch", name, "s", 2 * seconds) for name, seconds in reference.items()]
    entries.append(entry("memory", "copy", "B/s", 3.0e12))
    environment = Environment(device_name="NVIDIA H100 80GB HBM3", kind="cuda", date="2026-03-04T05:06:07Z")
    cache.save(Measurement(environment=environment, entries=tuple(entries)))
    target = write(SMALL) + ":workload"
    (usual,) = json.loads(run("predict", target, "--json")[1])["machines"]
    (own,) = json.loads(run("predict", target, "--json", "--calibrate")[1])["machines"]
    assert usual["ceilings"] == "datasheet"
    assert "2026-03-04" in own["host"]
    assert own["host_ns"] == pytest.approx(2 * usual["host_ns"])
    assert "gobrrr machine" in refused(run("predict", target, "--calibrate", "--on", "a100-80gb"))


def entry(group: str, name: str, unit: str, value: float) -> MeasuredFigure:
    return MeasuredFigure(
        group=group, name=name, unit=unit, amount=Quantity(value=value, low=value, high=value, runs=5)
    )


def test_without_torch_it_says_what_to_install(run: Run, write: Any, monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *more: Any, **keywords: Any) -> Any:
        if name.partition(".")[0] == "torch":
            raise ImportError("No module named 'torch'")
        return real(name, *more, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert "pip install torch" in refused(run("predict", write(SMALL) + ":workload"))


def test_in_a_process_without_torch(write: Any):
    """As a user without torch sees it: found by no importer."""
    code = f"""
        import sys

        class NoTorch:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name.partition(".")[0] == "torch":
                    raise ModuleNotFoundError("No module named 'torch'", name="torch")

        sys.meta_path.insert(0, NoTorch)
        from gobrrr import cli
        sys.exit(cli.main(["predict", {write(SMALL) + ":workload"!r}]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"gobrrr: [^\n]*pip install torch[^\n]*\n", done.stderr)


# With torch


def need_torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.torch
def test_the_example_runs_as_printed(run: Run, write: Any):
    need_torch()
    path = write(run("predict", "--example")[1], "workload.py")
    status, out, err = run("predict", f"{path}:workload", "--on", "h100,a100-80gb,h200,b200,mi300x")
    assert (status, err) == (0, "")
    assert "workload.py:workload" in out
    assert re.search(r"^ (COMPUTE|MEMORY)-BOUND|^ MIXED", out, re.M)
    assert len(out.splitlines()) <= terminal.SCREEN_LINES
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.torch
def test_the_example_counts_what_its_sizes_say(run: Run, write: Any):
    """12 blocks of width 1024 on 8 x 1024 tokens and a head of 32,000; 6 FLOP a parameter of a product and a token.

    Attention's two products have half of 4 s^2 w FLOP a layer and sequence each way (it is causal): times 3.5, since
    its backward pass computes one product anew beside four.
    """
    need_torch()
    path = write(prediction.PREDICT_EXAMPLE, "workload.py")
    tokens, width, layers, sequence = 8 * 1024, 1024, 12, 1024
    products = 6 * tokens * (layers * 12 * width**2 + width * 32000)
    attention = 8 * layers * 2 * sequence**2 * width * 3
    counted = api.count(f"{path}:workload")
    assert counted.flop_contraction == pytest.approx(products + attention, rel=0.005)
    assert counted.unknown == {}


@pytest.mark.torch
def test_json_keeps_the_contract(run: Run, write: Any, tmp_path: Path):
    need_torch()
    saved = tmp_path / "saved.json"
    status, out, err = run("predict", write(SMALL) + ":workload", "--on", "h100,b200", "--json", "--save", str(saved))
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["origin"] == "static"
    assert [one["machine"] for one in found["machines"]] == ["H100-SXM5-80GB", api.machine("b200").name]
    assert json.loads(saved.read_text()) == found
    if CHECKER.is_file():
        assert checker().faults(found) == []
    status, again, _ = run("report", str(saved))
    assert status == 0
    assert "Predicted" in again


@pytest.mark.torch
def test_quiet_is_one_line(run: Run, write: Any):
    need_torch()
    status, out, err = run("predict", write(SMALL) + ":workload", "--quiet")
    assert (status, err) == (0, "")
    assert re.fullmatch(r"OVERHEAD-BOUND[^\n]*\(certainty: \w+\)\n", out)


@pytest.mark.torch
@pytest.mark.parametrize("width", ["60", "80", "120"])
def test_width(run: Run, write: Any, width: str):
    need_torch()
    status, out, _ = run("predict", write(SMALL) + ":workload", "--width", width)
    assert status == 0
    assert max(map(len, out.splitlines())) <= int(width)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["workload", "forward", "direct", "Holder.step", "waits"])
def test_what_a_name_may_stand_for(run: Run, write: Any, name: str):
    need_torch()
    status, _, err = run("predict", f"{write(SMALL)}:{name}", "--quiet")
    assert (status, err) == (0, "")


@pytest.mark.torch
def test_a_module_s_name(run: Run, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    need_torch()
    write(SMALL, "some_work_module.py")
    monkeypatch.chdir(tmp_path)
    try:
        assert run("predict", "some_work_module:workload", "--quiet")[0] == 0
    finally:
        sys.modules.pop("some_work_module", None)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no/such.py:step", "no such file"),
        ("{file}", "name one of its callables"),
        ("{file}:nope", "has no nope; it has build, workload, forward, direct"),
        ("{file}:not_callable", "no callable"),
        ("{file}:Holder.nope", "has no Holder.nope"),
        ("{file}:nothing", "nothing to predict"),
        ("{file}:broken", r"work\.py:\d+"),
        ("no_such_module_here:step", "no_such_module_here"),
        ("{folder}:step", "No module named"),
        (":step", "file.py:callable"),
        ("", "file.py:callable"),
    ],
)
def test_a_mistake_is_one_line(run: Run, write: Any, tmp_path: Path, target: str, message: str):
    need_torch()
    path = write(SMALL)
    assert re.search(message, refused(run("predict", target.format(file=path, folder=tmp_path))))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('bad\\nvalue')", r"work\.py:1: ValueError: bad"),
        ("def step(:\n", "is not Python"),
        ("import no_such_module_here\n", "no_such_module_here"),
        ("import sys\nsys.exit(3)\n", "SystemExit|exit"),
        ("", "nothing to call"),
        ("def step():\n    raise KeyError\n", r"work\.py:2: KeyError"),
    ],
)
def test_a_file_that_fails_is_one_line(run: Run, write: Any, text: str, message: str):
    need_torch()
    assert re.search(message, refused(run("predict", write(text) + ":step")))


@pytest.mark.torch
def test_a_save_that_can_t_be_written_is_refused_first(run: Run, write: Any):
    need_torch()
    said = refused(run("predict", write("raise RuntimeError") + ":step", "--save", "/no/such/folder/x.json"))
    assert "/no/such/folder" in said
    assert "RuntimeError" not in said


@pytest.mark.torch
def test_count_prints_and_gives_json(run: Run, write: Any):
    """Three layers in the forward pass, and twice that but one product in the backward pass."""
    need_torch()
    target = write(SMALL) + ":workload"
    status, out, err = run("count", target, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["flop_contraction"] == pytest.approx(FORWARD_FLOP * (1 + 2 - 1 / 3))
    status, out, err = run("count", target)
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "addmm" in out
    assert "no such file" in refused(run("count", "no/such.py:step"))
    refused(run("count"))


# The library's words


def layers(torch: Any) -> Any:
    return torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(3)))


@pytest.mark.torch
def test_predict_a_callable_with_its_arguments():
    torch = need_torch()
    model, x = layers(torch), torch.randn(64, 256)
    found = gobrrr.predict(model, x, on="h100,b200")
    assert found.origin == "static"
    assert [one.machine for one in found.machines] == ["H100-SXM5-80GB", gobrrr.machine("b200").name]
    assert found.totals.flop is not None
    assert found.totals.flop >= FORWARD_FLOP
    assert "Predicted" in str(found)


@pytest.mark.torch
def test_predict_takes_machines_and_names_and_drops_repeats():
    torch = need_torch()
    model, x = layers(torch), torch.randn(64, 256)
    found = gobrrr.predict(model, x, on=["h100", gobrrr.machine("b200"), "H100 SXM", "h100"])
    assert [one.machine for one in found.machines] == ["H100-SXM5-80GB", gobrrr.machine("b200").name]
    assert gobrrr.predict(model, x, on=gobrrr.machine("h100")).machine == "H100-SXM5-80GB"


@pytest.mark.torch
def test_keywords_reach_the_step():
    torch = need_torch()

    def step(x: Any, *, times: int) -> None:
        for _ in range(times):
            x @ x

    x = torch.randn(64, 64)
    assert gobrrr.count(step, x, times=3).flop_contraction == 3 * 2 * 64**3


@pytest.mark.torch
def test_count_is_the_closed_form():
    torch = need_torch()
    model, x = layers(torch), torch.randn(64, 256)
    assert gobrrr.count(model, x).flop_contraction == FORWARD_FLOP
    workload = gobrrr.Workload(model=model, inputs=(x,), name="three layers")
    assert gobrrr.count(workload).flop_contraction == FORWARD_FLOP
    assert gobrrr.count(workload).target == "three layers"


@pytest.mark.torch
def test_a_workload_s_step_is_what_counts():
    """The backward pass is two products for each of the forward pass, but the first layer's input needs no gradient."""
    torch = need_torch()
    model, x = layers(torch), torch.randn(64, 256)
    workload = gobrrr.Workload(model=model, step=lambda given: model(given).sum().backward(), inputs=(x,))
    assert gobrrr.count(workload).flop_contraction == pytest.approx(FORWARD_FLOP * (1 + 2 - 1 / 3))
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.torch
def test_an_empty_workload_is_refused():
    need_torch()
    with pytest.raises(UsageError, match="needs a step, or a model"):
        gobrrr.predict(gobrrr.Workload())


@pytest.mark.torch
def test_the_step_s_errors_name_the_line():
    torch = need_torch()

    def step() -> None:
        torch.randn(4, 5) @ torch.randn(4, 5)

    with pytest.raises(UsageError, match=rf"{Path(__file__).name}:\d+") as error:
        gobrrr.predict(step)
    assert "\n" not in str(error.value)


@pytest.mark.torch
def test_a_missing_file_is_an_input_error():
    need_torch()
    with pytest.raises(InputError, match="no such file"):
        gobrrr.predict("no/such/file.py:step")


@pytest.mark.torch
def test_a_small_batch_is_overhead_bound_and_a_large_one_is_not():
    torch = need_torch()
    with torch.device("meta"):
        model = layers(torch)
        small, large = torch.empty(1, 256), torch.empty(2**22, 256)
    assert gobrrr.predict(model, small).regime == "overhead"
    assert gobrrr.predict(model, large).regime in ("compute", "memory", "mixed")
