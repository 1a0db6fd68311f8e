"""Programs that get in the way: other profilers, threads, watches within watches, steps that are none, closed ends."""

from __future__ import annotations

import asyncio
import cProfile
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.doors import live  # noqa: E402
from gobrrr.doors.targets import check_target, names_a_step  # noqa: E402
from gobrrr.errors import InputError, UsageError  # noqa: E402
from gobrrr.observe.live.ops import dispatch  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.pull import pull  # noqa: E402
from gobrrr.observe.live.recorder import Loops, ProfilerRun, time_loops  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402
from gobrrr.observe.live.watches.rivals import recording  # noqa: E402
from tests.live.look import CPU  # noqa: E402
from tests.live.test_watcher import Counting, state  # noqa: E402

SHORT = {"warmup": 1, "window": 2, "profiled": 1}


@pytest.fixture(autouse=True)
def known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.hardware import cache

    monkeypatch.setattr(live, "_measure_once", lambda _: None)
    monkeypatch.setattr("gobrrr.doors.pipeline.look_up", lambda _: cache.KeptMachine(CPU))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    home = torch.autograd.profiler
    before = state(), home.profile._prepare_trace, home._run_on_profiler_start, torch.set_anomaly_enabled, os.getcwd()
    yield
    assert (
        state(), home.profile._prepare_trace, home._run_on_profiler_start, torch.set_anomaly_enabled, os.getcwd()
    ) == before  # fmt: skip
    assert not recording()


def times(count: int, step: Callable[[], Any]) -> None:
    for _ in range(count):
        step()


# -- another profiler of torch's


def test_a_step_that_profiles_itself_is_refused_in_one_line() -> None:
    step = Counting()

    def profiled() -> None:
        with torch.profiler.profile() as own:
            step()
        assert len(own.events()) > 3

    with pytest.raises(UsageError, match="another of torch's profilers recorded in 3 of the steps"):
        gobrrr.diagnose(profiled)
    assert step.calls < 8


def test_a_step_within_a_profiler_is_refused_before_it_runs() -> None:
    step = Counting()
    with torch.profiler.profile() as own:
        torch.ones(3).sum()
        with pytest.raises(UsageError, match="records already"):
            gobrrr.diagnose(step)
        torch.ones(3).sum()
    assert step.calls == 0
    assert sum(one.name == "aten::sum" for one in own.events()) == 2


@pytest.mark.parametrize("at", [1, 3, 6, 17, 19])
def test_a_profiler_that_the_program_starts_once_is_left_whole_and_ours_begins_again(at: int) -> None:
    step = Counting()

    class Seen:  # what a class holds is not put back
        relus: ClassVar[list[int]] = []

    def sometimes() -> None:
        if step.calls + 1 != at:
            step()
            return
        with torch.profiler.profile() as own:
            step()
        Seen.relus.append(sum(one.name == "aten::relu" for one in own.events()))

    found = gobrrr.diagnose(sometimes)
    assert Seen.relus == [1]
    assert found.live is not None
    assert len(found.live.times.ns) == 10


def test_a_schedule_of_the_programs_own_gets_its_steps_and_the_watch_comes_after() -> None:
    seen: list[int] = []

    def count(own: Any) -> None:
        seen.append(sum(one.name == "aten::relu" for one in own.events()))

    step, schedule = Counting(), torch.profiler.schedule(wait=5, warmup=2, active=3, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=count) as own, gobrrr.watch(range(60)) as steps:
        for _ in steps:
            step()
            own.step()
    assert seen == [3]
    assert steps.diagnosis.live is not None


def test_a_profile_function_of_the_programs_own_comes_back() -> None:
    own = cProfile.Profile()
    own.enable()
    try:
        hook = sys.getprofile()
        gobrrr.diagnose(Counting())
        assert sys.getprofile() is hook
    finally:
        own.disable()


# -- one at a time


def test_a_diagnosis_within_a_step_is_refused() -> None:
    with pytest.raises(UsageError, match="one within another"):
        gobrrr.diagnose(lambda: gobrrr.diagnose(Counting()))


def test_of_nested_watches_the_inner_one_says_why_it_saw_nothing_and_no_loop_breaks() -> None:
    turns = 0
    with gobrrr.watch(range(12), window=4, profiled=2) as outer:
        for _ in outer:
            with gobrrr.watch(range(3)) as inner:
                for _ in inner:
                    turns += 1
                    torch.ones(3).sum()
            if not outer.done:
                with pytest.raises(UsageError, match="steps are watched already"):
                    _ = inner.diagnosis
    assert turns == 36


def test_a_decorated_step_between_two_calls_gives_way_to_a_diagnosis_and_begins_again() -> None:
    train = gobrrr.watch(Counting(), **SHORT)
    times(3, train)
    assert gobrrr.diagnose(Counting()).live is not None
    times(12, train)
    assert train.diagnosis.live is not None


def test_a_decorated_step_that_nobody_holds_any_more_is_in_nobodys_way() -> None:
    times(3, gobrrr.watch(Counting()))
    other = gobrrr.watch(Counting(), **SHORT)
    times(12, other)
    assert other.diagnosis.live is not None


def test_a_watch_that_ended_early_begins_again_when_it_is_opened_again() -> None:
    steps = gobrrr.watch(range(9), **SHORT)
    with steps:
        for number in steps:
            if number == 3:
                break
    with steps:
        for _ in steps:
            torch.ones(3).sum()
    assert steps.diagnosis.live is not None


# -- decorators


def test_a_decorated_method_is_one() -> None:
    class Trainer:
        @gobrrr.watch(**SHORT)
        def train(self, batch: int, *, scale: int = 1) -> tuple[Any, int]:
            torch.ones(3).sum()
            return self, batch * scale

    trainer = Trainer()
    for batch in range(12):
        assert trainer.train(batch, scale=2) == (trainer, 2 * batch)
    assert trainer.train.diagnosis.live.steps_from.endswith("Trainer.train")


def test_of_recursive_calls_the_outermost_is_a_step() -> None:
    @gobrrr.watch(**SHORT)
    def depth(left: int) -> int:
        torch.ones(3).sum()
        return 1 + depth(left - 1) if left else 0

    for _ in range(12):
        assert depth(3) == 3
    ops = depth.diagnosis.live
    assert ops is not None
    assert depth.diagnosis.steps == 1


def test_after_exceptions_that_the_program_lives_with_the_watching_begins_again() -> None:
    calls = 0

    @gobrrr.watch(**SHORT)
    def step() -> None:
        nonlocal calls
        calls += 1
        torch.ones(3).sum()
        if calls in (2, 5, 9):
            raise MemoryError("mine")

    for _ in range(24):
        try:
            step()
        except MemoryError:
            continue
    assert step.diagnosis.live is not None


def test_a_step_that_threads_call_is_watched_on_one_of_them() -> None:
    step = gobrrr.watch(Counting(), **SHORT)
    threads = [threading.Thread(target=times, args=(20, step)) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert step._step.calls == 60
    gobrrr.diagnose(Counting())


def test_what_is_no_loop_and_no_step_is_refused() -> None:
    async def coroutine() -> None:
        return None

    def generator() -> Iterator[int]:
        yield 1

    for wrong in ("train.py:step", 5, coroutine, generator):
        with pytest.raises(UsageError):
            gobrrr.watch(wrong)
    with pytest.raises(UsageError, match="open it first"):
        gobrrr.watch().boundary()


def test_what_fails_in_the_measuring_does_not_fail_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: ProfilerRun) -> None:
        raise OSError("no room")

    monkeypatch.setattr(ProfilerRun, "begin", broken)
    with gobrrr.watch(range(20), **SHORT) as steps:
        assert sum(1 for _ in steps) == 20
    with pytest.raises(UsageError, match="no room"):
        _ = steps.diagnosis


# -- steps that are none, Workloads that are wrong


def test_a_step_that_only_makes_what_would_run_is_refused() -> None:
    async def later() -> None:
        torch.ones(3).sum()

    with pytest.raises(UsageError, match="asynchronous"):
        gobrrr.diagnose(later)
    assert gobrrr.diagnose(lambda: asyncio.run(later())).live is not None


@pytest.mark.parametrize(
    "wrong",
    [{"model": 3}, {"step": 3}, {}, {"model": torch.nn.ReLU(), "inputs": torch.ones(2)},
     {"model": torch.nn.ReLU(), "inputs": None}, {"model": torch.nn.ReLU(), "inputs": "x"}],
)  # fmt: skip
def test_a_workload_with_wrong_fields_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Workload"):
        gobrrr.diagnose(gobrrr.Workload(**wrong))


def test_a_batch_that_cant_be_doubled_is_refused_before_the_step_is_measured() -> None:
    step = Counting()
    with pytest.raises(UsageError, match="can't be multiplied"):
        gobrrr.diagnose(gobrrr.Workload(step=lambda _: step(), inputs=("text",)), scale=True)
    assert step.calls == 0


def test_wrong_arguments_are_the_callers_own_error() -> None:
    with pytest.raises(TypeError) as caught:
        gobrrr.diagnose(lambda missing: missing)
    said = live.users_error("it", caught.value)
    assert said is not None
    assert said.startswith("it failed when it was called: TypeError")


def test_names_of_files(tmp_path: Path) -> None:
    file = tmp_path / "a b é.py"
    file.write_text("import torch, gobrrr, os\ndef é(): torch.ones(3).sum()\nw = gobrrr.Workload(step=é)\n")
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    assert names_a_step(f"{file}:é")
    for name in ("é", "w"):
        assert gobrrr.diagnose(f"{file}:{name}").live is not None
    with pytest.raises(InputError, match=r"is not Python.*line 1"):
        gobrrr.diagnose(f"{broken}:f")
    with pytest.raises(UsageError, match="name one of its callables"):
        check_target(f"{file}:not a name")


def test_a_named_step_may_leave_and_remove_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "leaves.py"
    file.write_text(
        "import os, tempfile, torch\n"
        "def step():\n    os.chdir(tempfile.mkdtemp())\n    os.rmdir(os.getcwd())\n    torch.ones(3).sum()\n"
    )
    assert gobrrr.diagnose(f"{file}:step").live is not None


# -- settings around the step


def test_tracers_within_a_step_run_and_their_operations_are_not_counted() -> None:
    def step() -> None:
        with FakeTensorMode():
            torch.ones(3, 3) @ torch.ones(3, 3)
        torch.ones(3).sum()

    names = [one.call.name for one in dispatch.watch(step).calls]
    assert "aten::sum" in names
    assert "aten::mm" not in names


def test_the_calibration_is_on_the_cpu_whatever_the_default_device_is() -> None:
    plain = time_loops()
    torch.set_default_device("meta")
    try:
        found = time_loops()
    finally:
        torch.set_default_device(None)
    assert isinstance(found, Loops)
    assert found.op_ns < 20 * plain.op_ns  # an operation on meta tensors takes 50 us


def test_a_step_of_very_many_operations_is_recorded_once() -> None:
    watcher = Watcher(options=WatchOptions(warmup=1, window=2, profiled_s=1e9))
    step = Counting()

    def costly() -> None:
        step()
        if recording():
            watcher._profile_began -= 60.0  # as though recording had taken a minute

    pull(watcher, costly, (), {})
    profile = watcher.profile("step")
    assert profile.ranks[0].live is not None
    assert profile.ranks[0].live.profiled_steps == 1


def test_operations_of_other_threads_are_said_to_be_missing() -> None:
    def step() -> None:
        other = threading.Thread(target=lambda: torch.ones(3).sum())
        other.start()
        other.join()

    assert any("the thread of the steps" in note for note in gobrrr.diagnose(step).notes)


def test_no_room_for_the_profile_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher(options=WatchOptions(warmup=1, window=2, profiled=1))
    pull(watcher, Counting(), (), {})
    assert watcher._recorder is not None
    monkeypatch.setattr(watcher._recorder._kept, "export_chrome_trace", lambda _: None)
    with pytest.raises(InputError, match="no room"):
        watcher.profile("step")


def test_a_profiler_that_is_prepared_before_the_watch_begins_is_left_whole() -> None:
    """It starts to record two steps later: nothing of ours is recorded until then."""
    schedule = torch.profiler.schedule(wait=0, warmup=3, active=1, repeat=1)
    with torch.profiler.profile(schedule=schedule) as theirs, gobrrr.watch() as steps:
        for _ in range(6):
            torch.ones(8).sum()
            steps.boundary()
            theirs.step()
    assert any(event.key == "aten::sum" for event in theirs.key_averages())
