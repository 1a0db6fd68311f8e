"""The watcher and what calls it: phases, measured times, what is left behind, and exceptions of the program."""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import gobrrr  # noqa: E402
from gobrrr.doors import live  # noqa: E402
from gobrrr.errors import UsageError  # noqa: E402
from gobrrr.model.diagnosis import Diagnosis  # noqa: E402
from gobrrr.observe.live.clock import step_times  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.pull import pull  # noqa: E402
from gobrrr.observe.live.warmup import WarmUp  # noqa: E402
from gobrrr.observe.live.watcher import Phase, Watcher  # noqa: E402
from tests.live.look import CPU, diagnosed  # noqa: E402

MOST_AFTER_WARMUP = 20
"""The issue's promise: `diagnose` needs at most 20 steps beyond warm-up by default."""


@pytest.fixture(autouse=True)
def known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test measures this machine."""
    from gobrrr.hardware import cache

    monkeypatch.setattr(live, "_measure_once", lambda _: None)
    monkeypatch.setattr("gobrrr.doors.pipeline.look_up", lambda _: cache.KeptMachine(CPU))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Everything that a watcher may touch is as it was."""
    before = state()
    yield
    assert state() == before


def state() -> dict[str, Any]:
    module = torch.nn.modules.module
    optimizer = sys.modules["torch.optim.optimizer"]
    return {
        "gc": list(gc.callbacks),
        "forward": dict(module._global_forward_hooks),
        "pre": dict(module._global_forward_pre_hooks),
        "step": dict(optimizer._global_optimizer_post_hooks),
        "trace": sys.gettrace(),
        "profile": sys.getprofile(),
        "modes": len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()),
        "profiler": torch.autograd.profiler._is_profiler_enabled,
        "showwarning": warnings.showwarning,
        "path": list(sys.path),
        "argv": list(sys.argv),
        "grad": torch.is_grad_enabled(),
    }


class Counting:
    """A step that counts its calls and takes some time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls = 0
        self.seconds = seconds
        self.x = torch.randn(64, 64)

    def __call__(self) -> None:
        self.calls += 1
        (self.x @ self.x).relu().sum()
        if self.seconds:
            time.sleep(self.seconds)


def test_a_step_runs_at_most_twenty_times_beyond_warm_up() -> None:
    step = Counting()
    watcher = Watcher()
    pull(watcher, step, (), {})
    found = watcher.profile("step").ranks[0].live
    assert found is not None
    assert step.calls - found.warmup_steps - 1 <= MOST_AFTER_WARMUP  # the first call may have made a Workload
    assert len(found.times.ns) == 10
    assert found.profiled_steps == 5


def test_issuing_a_step_takes_what_the_settled_steps_of_the_warm_up_took_until_they_returned() -> None:
    """The first step compiled something. Of the others each lasted 10 s, and the host was done after 2, 4 and 3."""
    warm_up = WarmUp()
    assert warm_up.issue_ns() is None
    for returned, begins in ((0.0, 0.0), (59.0, 60.0), (62.0, 70.0), (74.0, 80.0), (83.0, 90.0)):
        warm_up.mark(returned, begins, 1)
    assert warm_up.issue_ns() == pytest.approx(3e9)


def test_on_a_cpu_nothing_is_issued() -> None:
    watcher = Watcher(options=WatchOptions(look=False))
    pull(watcher, Counting(), (), {})
    found = watcher.profile("step").ranks[0].live
    assert found is not None
    assert found.issue_ns is None


def test_the_wall_is_the_programs_own_and_the_budget_sums_to_it() -> None:
    found = diagnosed(Counting(0.01))
    wall = found.unprofiled_wall_ns
    assert wall.how == "measured"
    assert wall.value is not None
    assert 10e6 <= wall.value < 50e6  # it sleeps for 10 ms; a shared machine sleeps longer
    assert sum(one.ns for one in found.budget) == pytest.approx(wall.value, rel=1e-9)
    assert found.regime == "overhead"
    assert found.origin == "live"
    assert found.live is not None
    assert found.live.kind == "cpu"


def test_a_step_of_one_large_product_is_bound_by_compute() -> None:
    x = torch.randn(512, 512)

    def step() -> None:
        for _ in range(5):
            x @ x

    assert diagnosed(step).regime == "compute"


def test_a_step_of_large_copies_is_bound_by_memory() -> None:
    x, y = torch.randn(1 << 22), torch.empty(1 << 22)
    assert diagnosed(lambda: y.copy_(x)).regime == "memory"


def test_a_step_without_operations_is_still_measured() -> None:
    found = diagnosed(lambda: time.sleep(0.002))
    assert found.unprofiled_wall_ns.value == pytest.approx(2e6, rel=0.5)
    assert sum(one.ns for one in found.budget) == pytest.approx(found.unprofiled_wall_ns.value)


@pytest.mark.parametrize("after", [0, 1, 3, 5, 14, 16, 18])
def test_an_exception_passes_through_untouched(after: int) -> None:
    class Own(Exception):
        pass

    raised = Own("mine")
    step = Counting()

    def failing() -> None:
        if step.calls >= after:
            raise raised
        step()

    with pytest.raises(Own) as caught:
        pull(Watcher(), failing, (), {})
    assert caught.value is raised


def test_warm_up_goes_on_until_the_step_is_steady() -> None:
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        time.sleep(max(0.02 - 0.004 * calls, 0.004))

    watcher = Watcher(options=WatchOptions(look=False))
    pull(watcher, step, (), {})
    found = watcher.profile("step").ranks[0].live
    assert found is not None
    assert found.warmup_steps >= 4
    assert found.times.wall_ns < 8e6


def test_options_that_make_no_window_are_refused() -> None:
    for wrong in ({"window": 1}, {"profiled": 0}, {"warmup": -1}):
        with pytest.raises(UsageError):
            WatchOptions(**wrong)


def test_step_times_by_hand() -> None:
    found = step_times([10.0, 12.0, 11.0, 30.0, 10.0, 13.0])
    assert (found.wall_ns, found.median_ns, found.mean_ns) == (11.5, 11.5, pytest.approx(86 / 6))
    assert (found.low_ns, found.high_ns) == (10.0, 13.0)
    assert found.drift == pytest.approx((11.5 - 11) / 11)
    assert step_times([5.0]).drift is None


def test_a_watched_loader_gives_every_batch_and_then_an_answer() -> None:
    x = torch.randn(64, 64)
    with gobrrr.watch(list(range(60))) as steps:
        got = []
        for batch in steps:
            x @ x
            got.append(batch)
    assert got == list(range(60))
    assert steps.done
    assert isinstance(steps.diagnosis, Diagnosis)
    assert steps.diagnosis.live is not None
    assert steps.diagnosis.live.steps_from == "each turn of the watched loop"
    assert steps.diagnosis is steps.diagnosis


def test_a_loop_that_ends_early_says_so_and_a_break_leaves_nothing() -> None:
    with gobrrr.watch(range(1)) as steps:
        for _ in steps:
            pass
    with pytest.raises(UsageError, match="ended after"):
        _ = steps.diagnosis
    with gobrrr.watch(range(100)) as steps:
        for number in steps:
            if number == 15:
                break


def test_boundaries_by_hand_and_what_is_done_then() -> None:
    said: list[Diagnosis] = []
    with gobrrr.watch(then=said.append) as steps:
        for _ in range(60):
            torch.ones(10).sum()
            steps.boundary()
    assert len(said) == 1
    assert said[0] is steps.diagnosis
    with pytest.raises(UsageError, match="nothing to iterate over"), gobrrr.watch() as steps:
        iter(steps).__next__()


def test_a_decorated_step_is_itself_and_knows_its_diagnosis() -> None:
    @gobrrr.watch
    def train(x: Any) -> Any:
        """One step."""
        return x @ x

    x = torch.eye(8)
    for _ in range(60):
        assert torch.equal(train(x), x)
    assert train.__name__ == "train"
    assert train.__doc__ == "One step."
    assert train.diagnosis.live is not None


def test_an_exception_in_a_decorated_step_ends_the_watching() -> None:
    @gobrrr.watch
    def train(fail: bool) -> None:
        if fail:
            raise KeyError("mine")
        torch.ones(10).sum()

    for _ in range(8):
        train(False)
    with pytest.raises(KeyError, match="mine"):
        train(True)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UsageError, match="window_steps"):
        gobrrr.watch(range(3), window_steps=4)


def test_a_workload_a_module_and_a_factory() -> None:
    model = torch.nn.Linear(16, 16)
    x = torch.randn(4, 16)
    for target, arguments in (
        (gobrrr.Workload(model=model, inputs=(x,), name="mine"), ()),
        (model, (x,)),
        (lambda: gobrrr.Workload(step=lambda: model(x)), ()),
    ):
        assert gobrrr.diagnose(target, *arguments).live is not None
    with pytest.raises(UsageError, match="ran nothing of it"):
        gobrrr.diagnose(lambda: model)


def test_a_restarted_watcher_begins_again() -> None:
    watcher = Watcher(options=WatchOptions(warmup=1, look=False))
    watcher.open()
    try:
        for _ in range(6):
            watcher.boundary()
        assert watcher.phase is not Phase.WARMUP
        watcher.restart()
        assert watcher.phase is Phase.WARMUP
        while not watcher.done:
            watcher.boundary()
    finally:
        watcher.close()
