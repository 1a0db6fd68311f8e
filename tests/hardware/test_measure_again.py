"""A busy machine is measured, and measured again when it is quiet: on a clock and a watch that the test turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.hardware import cache
from gobrrr.hardware.bounds import unsettled
from gobrrr.hardware.measure import again, plan
from gobrrr.hardware.measure.device import Device
from gobrrr.hardware.measure.plan import Notebook, Stage
from gobrrr.hardware.measure.timing import CallTimer
from gobrrr.hardware.measure.watch import MachineWatch
from gobrrr.model.contention import Contention
from gobrrr.model.measured import Environment, MeasuredFigure, Measurement, Quantity, Skipped
from gobrrr.system.reading import ProcessorReading, System
from tests.hardware.measured_samples import environment

BUSY = Contention(seconds=1.0, processors=2, others=1.5, waited=0.7)
QUIET = Contention(seconds=1.0, processors=2, others=0.0, waited=0.0)
NOW = ProcessorReading(at_s=0.0, busy_s=0.0, own_s=0.0, waits_ns={}, throttled=None)


class Here(Device):
    """A CPU without torch."""

    def environment(self) -> Environment:
        return environment("A CPU", "cpu")


class Eyes(MachineWatch):
    """Says of each stage in turn what it is told to."""

    def __init__(self, stages: Iterable[Contention], quiet: bool = True, share: float | None = None) -> None:
        object.__setattr__(self, "told", list(stages))
        object.__setattr__(self, "quiet", quiet)
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "system", System(load=lambda: 0.0))

    def begin(self) -> ProcessorReading:
        return NOW

    def end(self, before: ProcessorReading) -> Contention:
        return self.told.pop(0)  # type: ignore[attr-defined, no-any-return]

    def is_quiet(self) -> bool:
        return self.quiet  # type: ignore[attr-defined, no-any-return]

    def device_share(self, after: bool = False) -> float | None:
        return self.share  # type: ignore[attr-defined, no-any-return]


class Machine:
    """Stages "a" and "b" of four seconds each; every run measures twice what the one before it did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.ran = 0.0, list[str]()
        self.device = Here(SimpleNamespace(), "cpu")
        monkeypatch.setattr(plan, "preserved", lambda _: nullcontext())
        monkeypatch.setattr(plan, "stages", lambda _: [self.stage("a"), self.stage("b")])
        monkeypatch.setattr(plan, "find_device", lambda _: self.device)
        monkeypatch.setattr(again, "find_device", lambda _: self.device)
        monkeypatch.setattr(plan, "_caveats", lambda _: ())

    def stage(self, name: str) -> Stage:
        def run(_: CallTimer, page: Notebook, end_s: float) -> None:
            self.now_s += 4.0
            self.ran.append(name)
            value = 1e11 * 2 ** self.ran.count(name)
            amount = Quantity(value=value, low=value, high=value, runs=9, best=value)
            page.write(MeasuredFigure(group="matrix", name=name, unit="FLOP/s", amount=amount))

        return Stage(name, 5.0, run)

    def measure(self, eyes: Eyes, limit_s: float = 30.0, **more: Any) -> Measurement:
        return plan.measure("cpu", now=lambda: self.now_s, limit_s=limit_s, watch=eyes, **more)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def values(measured: Measurement | None) -> dict[str, float]:
    assert measured is not None
    return {one.name: one.amount.value for one in measured.entries}


def test_what_others_disturbed_is_measured_once_more_when_they_have_gone(machine: Machine) -> None:
    found = machine.measure(Eyes([QUIET, BUSY, QUIET]))
    assert machine.ran == ["a", "b", "b"]
    assert values(found) == {"a": 2e11, "b": 4e11}
    assert unsettled(found) == []
    assert found.duration_s == 12.0


def test_where_they_stay_it_is_said_and_the_better_bound_is_kept(machine: Machine) -> None:
    found = machine.measure(Eyes([QUIET, BUSY, BUSY]))
    assert values(found) == {"a": 2e11, "b": 4e11}
    assert unsettled(found) == ["b"]
    run = found.stage("b")
    assert run is not None
    assert (run.contention, run.tries) == (BUSY, 2)
    assert machine.ran == ["a", "b", "b"]


def test_a_machine_that_is_busy_still_is_left_alone(machine: Machine) -> None:
    assert unsettled(machine.measure(Eyes([BUSY, BUSY], quiet=False))) == ["a", "b"]
    assert machine.ran == ["a", "b"]


def test_the_second_time_fits_into_the_same_limit(machine: Machine) -> None:
    machine.measure(Eyes([BUSY, BUSY]), limit_s=12.0)
    assert machine.ran == ["a", "b"]
    assert machine.now_s <= 12.0


def test_a_stage_without_time_is_late(machine: Machine) -> None:
    found = machine.measure(Eyes([BUSY], quiet=False), limit_s=8.0)
    assert [(one.stage, one.late) for one in found.skipped] == [("b", True)]
    assert unsettled(found) == ["a", "b"]


def test_a_compiler_is_not_started_where_others_leave_it_too_little_time(machine: Machine) -> None:
    """Of the first stage others cost 70 %: the second, of five seconds alone, would take 17, and 16 are left."""
    one, two = machine.stage("a"), dataclasses.replace(machine.stage("b"), compiles=True)
    for limit_s, ran in ((20.0, ["a"]), (21.0, ["a", "b"])):
        machine.ran.clear()
        page, bench = Notebook(), CallTimer(machine.device, lambda: machine.now_s)
        plan.run_stages(bench, [one, two], page, machine.now_s + limit_s, watch=Eyes([BUSY, BUSY]))
        assert machine.ran == ran
        assert [run.contention for run in page.runs] == [BUSY, BUSY if "b" in ran else None]


def test_others_on_the_gpu_are_of_every_stage(machine: Machine) -> None:
    found = machine.measure(Eyes([QUIET, QUIET], share=0.4))
    assert [run.contention.device for run in found.stages if run.contention] == [0.4, 0.4]


def test_a_later_diagnosis_measures_again_what_was_only_a_bound(machine: Machine, tmp_path: Path) -> None:
    cache.keep(machine.measure(Eyes([QUIET, BUSY], quiet=False)), tmp_path)
    told: list[str] = []

    def quiet(quiet: bool = True) -> Measurement | None:
        return again.measure_again(
            "cpu",
            limit_s=30.0,
            watch=Eyes([QUIET], quiet=quiet),
            where=tmp_path,
            progress=lambda *one: told.append(one[0]),
        )

    assert quiet(False) is None  # still busy
    assert machine.ran == ["a", "b"]
    assert values(quiet()) == {"a": 2e11, "b": 4e11}
    assert machine.ran == ["a", "b", "b"]
    assert told == ["b", "done"]
    assert quiet() is None  # nothing is in doubt any more
    kept = cache.like(environment("A CPU", "cpu"), tmp_path)
    assert values(kept) == {"a": 2e11, "b": 4e11}


def test_nothing_is_measured_again_where_nothing_is_kept(machine: Machine, tmp_path: Path) -> None:
    assert again.measure_again("cpu", limit_s=30.0, watch=Eyes([]), where=tmp_path) is None


def test_a_file_from_before_there_were_stages_is_measured_as_a_whole(machine: Machine, tmp_path: Path) -> None:
    amount = Quantity(value=1e11, low=5e10, high=2e11, runs=9)
    old = Measurement(
        environment=environment("A CPU", "cpu"),
        entries=(MeasuredFigure(group="matrix", name="a", unit="FLOP/s", amount=amount),),
        skipped=(Skipped(what="x", why="y"),),
    )
    cache.save(old, tmp_path)
    found = again.measure_again("cpu", limit_s=30.0, watch=Eyes([QUIET, QUIET]), where=tmp_path)
    assert values(found) == {"a": 2e11, "b": 2e11}


# -- the watch itself


def properties(**more: object) -> SimpleNamespace:
    return SimpleNamespace(uuid="1234", pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0, **more)


def gpu(hip: str | None = None) -> Device:
    cuda = SimpleNamespace(get_device_properties=lambda _: properties(), synchronize=lambda _: None)
    return Device(SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=hip)), "cuda")


@pytest.mark.parametrize(("said", "share"), [("37\n", 0.37), ("0", 0.0), ("[N/A]", None), ("", None)])
def test_the_drivers_tool_says_what_others_use_of_the_gpu(said: str, share: float | None) -> None:
    asked: list[list[str]] = []
    slept: list[float] = []
    watch = MachineWatch(gpu(), ask=lambda command: asked.append(command) or said, sleep=slept.append)  # type: ignore[func-returns-value]
    assert watch.device_share() == share
    assert asked[0][-1] == "--id=GPU-1234"
    assert slept == []
    assert watch.device_share(after=True) == share
    assert slept == [1.0]  # of what runs in the second before it is the tool's number


def test_amds_driver_says_it_in_a_file(tmp_path: Path) -> None:
    card = tmp_path / "0000:1b:00.0"
    card.mkdir()
    assert MachineWatch(gpu("6.4"), pci=tmp_path).device_share() is None
    (card / "gpu_busy_percent").write_text("55\n")
    assert MachineWatch(gpu("6.4"), pci=tmp_path).device_share() == 0.55


def test_a_cpu_shares_no_gpu_and_a_missing_tool_is_no_error() -> None:
    assert MachineWatch(Device(SimpleNamespace(), "cpu")).device_share() is None
    command = ["/nowhere/there-is-no-such-tool"]
    from gobrrr.hardware.measure import watch

    assert watch._asked(command) == ""


@pytest.mark.parametrize(
    ("others", "threads", "quiet"), [(0.0, 2, True), (0.5, 2, False), (0.9, 1, True), (1.5, 1, False), (None, 2, True)]
)
def test_quiet_is_as_many_free_processors_as_are_used(others: float | None, threads: int, quiet: bool) -> None:
    device = Device(SimpleNamespace(get_num_threads=lambda: threads), "cpu")

    class System_:
        def reading(self) -> ProcessorReading:
            return NOW

        def since(self, before: ProcessorReading) -> Contention:
            return Contention(seconds=0.3, processors=2, others=others)

    assert MachineWatch(device, system=System_(), sleep=lambda _: None).is_quiet() == quiet  # type: ignore[arg-type]
