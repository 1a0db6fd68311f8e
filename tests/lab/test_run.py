"""Running experiments: what stops one is said and does not stop the others."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.errors import UsageError
from gobrrr.hardware.measure import CallTimer, Device
from gobrrr.hardware.measure.compiler import NoCompilerError
from gobrrr.lab import catalogue
from gobrrr.lab.session import Lab
from gobrrr.model.experiment import Experiment
from gobrrr.model.measured import Environment


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab without torch, on a clock that goes a second a look."""
    ticks = iter(range(1000))
    monkeypatch.setattr(catalogue, "preserved", lambda torch: nullcontext())
    bench = CallTimer(Device(SimpleNamespace(), "cpu"), lambda: float(next(ticks)))
    return Lab(bench, Environment(device_name="x", kind="cpu"))


def failing(error: Exception) -> Any:
    def run(_: Lab) -> Experiment:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NoCompilerError("torch.compile needs Triton, which is not here"), "torch.compile needs Triton"),
        (RuntimeError("CUDA out of memory.\nTried"), "RuntimeError: CUDA out of memory."),
        (MemoryError(), "MemoryError"),
    ],
)
def test_what_stops_an_experiment_is_said(lab: Lab, error: Exception, why: str) -> None:
    found = catalogue.run_one("fusion", lab, failing(error))
    assert found.status == "skipped"
    assert found.why.startswith(why)
    assert found.title == catalogue.EXPERIMENTS["fusion"]
    assert found.duration_s > 0


def test_a_bug_is_not_hidden(lab: Lab) -> None:
    with pytest.raises(KeyError):
        catalogue.run_one("fusion", lab, failing(KeyError("x")))


def test_an_unknown_experiment() -> None:
    with pytest.raises(UsageError, match="there are intensity, fusion"):
        catalogue.run(["nope"])


def test_time_left(lab: Lab) -> None:
    assert lab.left_s == lab.budget_s
    assert lab.left_s == lab.budget_s - 1
