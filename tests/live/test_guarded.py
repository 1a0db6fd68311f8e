"""A watch that fails costs a live run what it watches, and never the user's own step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

torch = pytest.importorskip("torch")

from gobrrr.doors import live, running  # noqa: E402
from gobrrr.guarded import STRICT  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.live import watcher as watchers  # noqa: E402
from gobrrr.observe.live.ops.mode import DispatchRecorder  # noqa: E402
from gobrrr.observe.live.watches.collector import CollectorWatch  # noqa: E402

QUICK = {"warmup": 1, "most_warmup": 2, "window": 2, "profiled": 1}
SAID = "could not be checked: ZeroDivisionError: float division by zero"


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it: what fails becomes a line."""
    monkeypatch.delenv(STRICT)


def fail(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("float division by zero")


def observed() -> Any:
    """What a few steps showed, and how many of them ran to their end."""
    done = []
    with live.watch(None, on=None, then=None, options=QUICK) as steps:
        for _ in range(20):
            (torch.ones(8, 8) @ torch.ones(8, 8)).sum()
            done.append(1)
            steps.boundary()
    return steps._watcher.profile("a loop"), len(done)


@pytest.mark.parametrize("when", ["open", "window_begins", "step", "window_ends", "close", "found"])
def test_an_observer_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(CollectorWatch, when, fail)
    profile, done = observed()
    (rank,) = profile.ranks
    assert (done, rank.live.collector) == (20, None)
    assert f"the runs of Python's garbage collector {SAID}" in profile.notes
    assert rank.live.threads is not None


@pytest.mark.parametrize("when", ["open", "close"])
def test_a_look_at_the_operations_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    whole = getattr(watchers.OperationWatch, when)

    def failing(self: Any) -> None:
        whole(self)
        fail()

    monkeypatch.setattr(watchers.OperationWatch, when, failing)
    profile, done = observed()
    assert done == 20
    assert f"the operations of a step {SAID}" in profile.notes
    assert profile.ranks[0].live.times.wall_ns > 0


def test_an_operation_that_cannot_be_written_down_does_not_end_the_users_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DispatchRecorder, "_put", fail)
    profile, done = observed()
    assert done == 20
    assert f"some operations of the step {SAID}: they are missing" in profile.notes


def test_the_scaling_test_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.observe.live.ops import scaling

    monkeypatch.setattr(scaling, "scale_workload", fail)
    model = torch.nn.Linear(8, 8)
    profile = live.profile_of(Workload(model=model, inputs=(torch.ones(4, 8),)), (), {}, scale=True)
    assert profile.ranks[0].live.scaling is None
    assert f"scaling {SAID}" in profile.notes


def test_a_script_keeps_its_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "model = torch.nn.Linear(8, 8)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(60):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(4, 8)).sum().backward()\n"
        "    optimizer.step()\n"
        "sys.exit(7)\n"
    )
    monkeypatch.setattr(live, "diagnose_profile", fail)
    # its optimizer would outlive the test: other tests look at the optimizers that are there
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    ran = running.run(str(script), [], module=False, on=None, stop_after=False)
    assert (ran.status, ran.diagnosis) == (7, None)
    assert ran.why_not == f"{script}: its step {SAID}"
