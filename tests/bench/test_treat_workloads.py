"""Workloads that are to be treated: each of them runs on a CPU, and its numbers are finite."""

from __future__ import annotations

import json
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from bench import treat_table  # noqa: E402
from bench.gpu.treat_form import DEVICE, KNOWN, TINY, Known  # noqa: E402
from bench.gpu.treat_one import slim  # noqa: E402
from bench.gpu.treat_traces import SOURCES  # noqa: E402
from gobrrr.model.treated import Timing, Treated, TrialRecord  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.stepping import step_of  # noqa: E402
from gobrrr.observe.targets import find_callable  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

LIBRARY = find_spec("transformers") is not None


def every() -> list[Any]:
    lacking = pytest.mark.skipif(not LIBRARY, reason="needs transformers")
    return [pytest.param(one, id=name, marks=lacking if one.library else ()) for name, one in KNOWN.items()]


def forward(model: Any, *inputs: Any) -> Any:
    with torch.no_grad():
        return model(*inputs)


def numbers(found: Any) -> list[Any]:
    """The tensors of floats in what a step returned: one, a mapping or a sequence of them."""
    if isinstance(found, torch.Tensor):
        return [found] if found.is_floating_point() else []
    inner = found.values() if hasattr(found, "values") else found
    return [tensor for one in inner for tensor in numbers(one)]


def test_there_are_sixteen_of_them_and_some_have_nothing_to_gain():
    assert len(KNOWN) >= 16
    assert sum(not one.gains for one in KNOWN.values()) >= 2
    assert len(SOURCES) == len({one.target.partition(":")[0] for one in KNOWN.values()})


@pytest.mark.parametrize("known", every())
def test_a_workload_runs_a_step_on_the_cpu_and_its_numbers_are_finite(known: Known):
    work = known.make("cpu", True)
    assert isinstance(work, Workload)
    assert work.name == known.name
    step, arguments = step_of(work, forward)
    before = None if work.optimizer is None else [one.detach().clone() for one in work.model.parameters()]
    found = numbers(step(*arguments))
    assert found
    assert all(bool(one.isfinite().all()) for one in found)
    if before is not None:
        after = work.model.parameters()
        assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_process_of_its_own_finds_a_workload_by_its_name_and_its_size_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(DEVICE, "cpu")
    monkeypatch.setenv(TINY, "1")
    made = find_callable(KNOWN["small_parameters"].target)()
    assert isinstance(made, Workload)
    assert sum(one.numel() for one in made.model.parameters()) < 1000


def test_a_workload_is_the_same_each_time_it_is_made():
    first, second = (KNOWN["mlp_tiny"].make("cpu", True) for _ in range(2))
    assert torch.equal(first.inputs[0], second.inputs[0])
    assert torch.equal(next(first.model.parameters()), next(second.model.parameters()))


def test_what_is_done_to_a_photograph_follows_from_its_index_alone():
    from bench.gpu.treat_vision import Photographs

    photographs = Photographs(40, 28)
    torch.manual_seed(1)
    first, label = photographs[7]
    torch.manual_seed(2)
    again, _ = photographs[7]
    assert torch.equal(first, again)
    assert label == 7
    assert first.shape == (3, 28, 28)
    assert not torch.equal(first, photographs[23][0])


def test_what_is_kept_of_a_treatment_is_small_and_is_what_the_page_reads():
    record = TrialRecord(
        way="compile:regional", treatment="compile", kept=("tf32",), verdict="helped", why="faster", code="x" * 9999,
        expected_ns=4e6, predicted_saving_ns=(1e6, 5e6), compile_s=float("nan"),
        timing=Timing(before_ns=10e6, after_ns=6.123456789e6, spread_ns=1e4, rounds=9, steps=90),
    )  # fmt: skip
    diagnosis: Any = SimpleNamespace(regime="memory")
    found = slim(Treated(target="x:y", before=diagnosis, after=None, trials=(record,), kept=("compile:regional",)))
    text = json.dumps(found)
    assert len(text) < 1000
    trial = json.loads(text)["trials"][0]
    assert trial["timing"]["after_ns"] == 6.12346e6
    assert "compile_s" not in trial
    assert treat_table.error(trial) == pytest.approx(0.4 - 0.387654)
    assert found["regime"] == "memory"
