"""The bench on a clock that the test turns: what is timed, how often, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.hardware.measure import plan
from gobrrr.hardware.measure.device import Device
from gobrrr.hardware.measure.plan import Notebook, Stage, run_stages
from gobrrr.hardware.measure.timing import MAX_RUNS, MIN_RUNS, TICK_S, CallTimer
from gobrrr.model.contention import Contention
from gobrrr.model.measured import MeasuredFigure, Quantity, StageRun


class Clock:
    """Stands still until something takes time."""

    def __init__(self) -> None:
        self.time_s = 100.0
        self.calls = 0

    def __call__(self) -> float:
        return self.time_s

    def work(self, seconds: float) -> Any:
        """A call that takes `seconds`."""

        def call() -> None:
            self.calls += 1
            self.time_s += seconds

        return call


@pytest.fixture
def clock() -> Clock:
    return Clock()


def bench(clock: Clock) -> CallTimer:
    return CallTimer(Device(SimpleNamespace(), "cpu"), clock)


@pytest.mark.parametrize("seconds", [1e-7, 1e-4, 0.02])
def test_a_constant_call_is_timed_exactly(clock: Clock, seconds: float) -> None:
    found = bench(clock).time(clock.work(seconds), budget_s=0.3)
    assert found.value == pytest.approx(seconds, rel=1e-6)
    assert found.spread == pytest.approx(0, abs=1e-4)
    assert MIN_RUNS <= found.runs <= MAX_RUNS


def test_a_short_call_is_looped_until_the_clock_sees_it(clock: Clock) -> None:
    found = bench(clock).host(clock.work(1e-6), budget_s=0.05)
    assert clock.calls > found.runs * TICK_S / 1e-6 / 11


def test_the_budget_is_kept(clock: Clock) -> None:
    start = clock()
    bench(clock).time(clock.work(0.01), budget_s=0.3)
    assert clock() - start == pytest.approx(0.3, abs=0.05)


def test_a_call_that_is_slower_than_the_budget_is_run_a_few_times(clock: Clock) -> None:
    found = bench(clock).time(clock.work(2.0), budget_s=0.1)
    assert 3 <= found.runs <= MIN_RUNS


class Gpu:
    """A torch whose stream runs what it is given only when it is waited for, and writes everything down."""

    def __init__(self, clock: Clock, kernel_s: float) -> None:
        self.clock, self.kernel_s, self.log = clock, kernel_s, []
        self.device_s = 0.0
        self.int8 = "int8"
        self.cuda = SimpleNamespace(
            Event=self.event,
            current_stream=lambda _: "stream",
            synchronize=self.wait,
            mem_get_info=lambda _: (2**34, 2**35),
        )

    def kernel(self) -> None:
        self.log.append("kernel")
        self.device_s += self.kernel_s
        self.clock.time_s += 1e-5  # issuing costs the host this much, whatever the kernel takes

    def empty(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(fill_=lambda _: self.log.append("flush"))

    def wait(self, _: int) -> None:
        self.log.append("wait")
        self.clock.time_s += 1e-4

    def event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        one = SimpleNamespace(at=0.0)

        def record(_: object) -> None:
            self.log.append("record")
            one.at = self.device_s

        one.record = record
        one.elapsed_time = lambda end: (end.at - one.at) * 1e3
        return one


def test_a_gpu_is_timed_by_events_without_a_wait_in_between(clock: Clock) -> None:
    gpu = Gpu(clock, 2e-3)
    found = CallTimer(Device(gpu, "cuda"), clock).time(gpu.kernel, budget_s=0.05)
    assert found.value == pytest.approx(2e-3)
    text = " ".join(gpu.log)
    assert text.count("flush record kernel record") == found.runs  # nothing else lies between two events
    batches = text.split("wait")[1:-1]
    assert all(batch.count("kernel") >= MIN_RUNS for batch in batches)


def test_what_stays_in_the_cache_is_not_flushed(clock: Clock) -> None:
    gpu = Gpu(clock, 1e-3)
    CallTimer(Device(gpu, "cuda"), clock).time(gpu.kernel, budget_s=0.05, cold=False)
    assert "flush" not in gpu.log


def test_issuing_is_timed_without_the_wait(clock: Clock) -> None:
    gpu = Gpu(clock, 1.0)
    assert CallTimer(Device(gpu, "cuda"), clock).issue(gpu.kernel).value == pytest.approx(1e-5)


def test_a_pipelined_call_includes_one_wait(clock: Clock) -> None:
    gpu = Gpu(clock, 1.0)
    found = CallTimer(Device(gpu, "cuda"), clock).wall(gpu.kernel, budget_s=0.05)
    assert found.value == pytest.approx(1e-5 + 1e-4 / 20)


def entry(name: str) -> MeasuredFigure:
    return MeasuredFigure(group="g", name=name, unit="s", amount=Quantity(value=1, low=1, high=1, runs=1))


def test_stages_end_in_time_and_failures_are_written_down(clock: Clock) -> None:
    def good(_: CallTimer, page: Notebook, end_s: float) -> None:
        clock.time_s += 4
        page.write(entry("good"))

    def bad(_: CallTimer, page: Notebook, end_s: float) -> None:
        raise RuntimeError("out of memory\nsecond line")

    seen: list[tuple[str, int, int]] = []
    page = Notebook()
    stages = [Stage("bad", 1, bad), Stage("good", 5, good), Stage("late", 7, good)]
    run_stages(bench(clock), stages, page, clock() + 10, lambda *what: seen.append(what))
    assert [one.name for one in page.entries] == ["good"]
    assert [(one.what, one.why) for one in page.skipped] == [
        ("bad", "RuntimeError: out of memory"),
        ("late", "less than 7 s of the time was left"),
    ]
    assert seen == [("bad", 0, 3), ("good", 1, 3), ("late", 2, 3), ("done", 3, 3)]


def test_an_interrupt_is_not_swallowed(clock: Clock) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stages(bench(clock), [Stage("x", 1, stop)], Notebook(), clock() + 10)


def test_a_load_average_is_said_where_nothing_else_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(plan, "_caveats", lambda _: ())
    device = Device(SimpleNamespace(), "cpu")
    silent = [StageRun(name="a", contention=Contention(seconds=1.0, processors=8))]
    assert plan._notes(device, silent, 1.0) == plan._notes(device, silent, None) == ()
    assert "load average 6.0 on 8" in plan._notes(device, silent, 6.0)[0]
    known = [StageRun(name="a", contention=Contention(seconds=1.0, processors=8, others=0.0, waited=0.0))]
    assert plan._notes(device, known, 6.0) == ()  # the program's own
