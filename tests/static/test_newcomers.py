"""What people try first, and what must not happen silently: each of these went wrong once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gobrrr
from gobrrr import UsageError

torch = pytest.importorskip("torch")
nn = torch.nn

from gobrrr.observe.static import recorder  # noqa: E402

pytestmark = pytest.mark.torch


def workload(step: Callable[[], Any]) -> gobrrr.Workload:
    return gobrrr.Workload(step=step)


def test_experts_that_data_choose_are_refused_and_not_left_out() -> None:
    experts = [nn.Linear(8, 8) for _ in range(4)]
    router = nn.Linear(8, 4)
    x = torch.randn(16, 8)

    def step() -> Any:
        chosen = router(x).topk(1, dim=-1).indices.squeeze(-1)
        out = torch.zeros_like(x)
        for n, expert in enumerate(experts):
            rows = torch.where(chosen == n)[0]
            if rows.numel():
                out[rows] = expert(x[rows])
        return out.sum()

    with pytest.raises(UsageError, match=r"test_newcomers\.py.*depends on data"):
        gobrrr.count(step)


def test_data_that_the_step_assigns_are_put_back() -> None:
    model = nn.Linear(4, 4)
    before = model.weight.detach().clone()

    def step() -> Any:
        model.weight.data = model.weight.data.clamp(-0.1, 0.1)
        return model(torch.randn(2, 4)).sum()

    gobrrr.count(step)
    assert model.weight.device.type == "cpu"
    assert torch.equal(model.weight, before)


def test_a_file_that_the_step_saves_to_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"a": 1}, path)
    model = nn.Linear(4, 4)

    def step() -> Any:
        torch.save(model.state_dict(), path)
        return model(torch.randn(2, 4))

    gobrrr.count(step)
    assert torch.load(path) == {"a": 1}


@pytest.mark.parametrize("made", [lambda: lambda: None, lambda: nn.Linear(2, 2)], ids=["a function", "a module"])
def test_a_factory_that_returns_no_workload_is_told_so(made: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match="Workload"):
        gobrrr.count(made)


def test_work_on_the_host_beside_the_device_is_named() -> None:
    def step() -> Any:
        a = torch.randn(512, 512)
        return (a @ a).sum(), torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")

    found = gobrrr.count(step)
    assert found.flop_contraction == 2 * 64**3
    assert any("on the host" in note and "aten::mm" in note for note in found.notes)


def test_an_operand_that_stands_there_twice_is_read_once() -> None:
    x = torch.randn(1024, 1024)
    y = torch.randn(1024, 1024)
    assert gobrrr.count(lambda: x * x).bytes_as_run == pytest.approx(2 * 4 * 2**20, rel=1e-4)
    assert gobrrr.count(lambda: x * y).bytes_as_run == 3 * 4 * 2**20


def test_places_that_a_batch_is_cut_at_are_drawn() -> None:
    data = torch.arange(100_000)

    def step() -> Any:
        starts = torch.randint(len(data) - 64, (4,))
        return torch.stack([data[at : at + 64] for at in starts]).float().sum()

    assert gobrrr.count(step).flop_model > 0


def test_a_step_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorder.MOST_CALLS == 400_000  # not reached here, where each operation takes a third of a millisecond
    monkeypatch.setattr(recorder, "MOST_CALLS", 3_000)

    def step() -> None:
        x = torch.randn(2)
        while True:
            x = x + 1

    with pytest.raises(UsageError, match=r"no end.*test_newcomers\.py"):
        gobrrr.count(step)


def test_a_program_with_arguments_and_late_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_it.py").write_text("SIZE = 8\n")
    path = tmp_path / "program.py"
    path.write_text(
        "import argparse\nimport torch\nparser = argparse.ArgumentParser()\nparser.add_argument('--n', default=2)\n"
        "args = parser.parse_args()\n\n\ndef step():\n    from beside_it import SIZE\n"
        "    return torch.ones(SIZE, SIZE) @ torch.ones(SIZE, SIZE)\n"
    )
    monkeypatch.setattr(sys, "argv", ["gobrrr", "count", "--no-such-option"])
    assert gobrrr.count(f"{path}:step").flop_contraction == 2 * 8**3
    assert sys.argv == ["gobrrr", "count", "--no-such-option"]
    assert "beside_it" not in sys.modules
    assert str(tmp_path) not in sys.path


def test_an_error_after_a_guess_says_what_was_guessed() -> None:
    def step() -> None:
        n = int(torch.randn(8, device="cuda").sum().item())
        raise ValueError(f"bad size {n}")

    with pytest.raises(UsageError, match=r"bad size 1 \(after the value of a float32 tensor at .*was taken as 1"):
        gobrrr.count(step)


def test_the_page_of_a_step_without_a_gap(tmp_path: Path) -> None:
    x = torch.randn(1 << 24)
    found = gobrrr.predict(lambda: x + 1, host=0.01)
    assert "<html" in gobrrr.html(found)


def test_operands_on_both_sides_of_the_link_are_named() -> None:
    def step() -> Any:
        return torch.randn(8, device="cuda") + torch.randn(8), torch.randn(8, device="cuda") * torch.tensor(2.0)

    (note,) = gobrrr.count(step).notes
    assert "aten::add" in note
    assert "it fails" in note
    assert "test_newcomers.py" in note


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own, when the compiler is first loaded
def test_a_compiled_module_is_predicted_as_it_is_written_and_says_so() -> None:
    model = torch.compile(nn.Linear(8, 8))
    x = torch.randn(4, 8)
    found = gobrrr.count(lambda: model(x))
    assert found.flop_contraction == 2 * 4 * 8 * 8
    assert any("compiled" in note for note in found.notes)


def test_an_operator_on_functions_is_refused_by_its_name() -> None:
    x = torch.randn(4)
    with pytest.raises(UsageError, match="cond is an operator on functions") as caught:
        gobrrr.count(lambda: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
    assert "0x" not in str(caught.value)
