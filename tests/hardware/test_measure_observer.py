"""The profiler's cost: a host whose times are made up with known costs, records of old caches, and this CPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from io import StringIO
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gobrrr.hardware.cache import decode
from gobrrr.hardware.ceilings import machine_of
from gobrrr.hardware.measure import CallTimer, find_device, observer
from gobrrr.hardware.measure.observer import NoEventsError, costs
from gobrrr.hardware.measure.plan import stages
from gobrrr.model.machine import RECORDING_MODES, Machine, ObserverCosts, RecordingCost
from gobrrr.model.measured import MeasuredFigure, Measurement, Skipped
from gobrrr.report import listing, machine, terminal
from tests.hardware.measured_samples import entry, environment, h100

torch_only = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
FRAMES = {"frames": 1, "views": 2, "annotations": 24, "kernels": 3}
PLAIN = {"frames": 20e-9, "views": 800e-9, "annotations": 4e-6, "kernels": 5e-6}
"""Seconds of a turn without the profiler."""


def samples(
    op: float, runtime: float, annotation: float, python: float, mode: str, slower: tuple[float, ...] = (1.0, 1.0, 1.0)
) -> dict[str, dict[str, list[float]]]:
    """What a host would show whose events cost this much (s), each round at its own pace."""
    added = {
        "frames": python,
        "views": op + 2 * python,
        "annotations": annotation + 24 * python,
        "kernels": op + runtime + 3 * python,
    }
    off = {name: [took * pace for pace in slower] for name, took in PLAIN.items()}
    on = {name: [took * pace + added[name] for pace in slower] for name, took in PLAIN.items()}
    return {observer.OFF: off, mode: on}


cost_s = st.floats(1e-8, 1e-4)


@given(op=cost_s, runtime=cost_s, annotation=cost_s, python=cost_s, pace=st.floats(0.5, 3.0))
def test_the_costs_that_went_in_come_out(op: float, runtime: float, annotation: float, python: float, pace: float):
    """A host that is slower in one round is so with and without the profiler."""
    made = samples(op, runtime, annotation, python, "with_stack", (1.0, pace, 1.0))
    found = {kind: one.value for kind, one in costs("with_stack", made, FRAMES).items()}
    wanted = {"op": op, "runtime": runtime, "annotation": annotation, "python": python}
    assert found == pytest.approx(wanted, rel=1e-3, abs=1e-12)


def test_without_stacks_there_are_no_frames():
    made = samples(200e-9, 900e-9, 300e-9, 0.0, "record_shapes")
    found = costs("record_shapes", made, FRAMES)
    assert set(found) == {"op", "annotation", "runtime"}
    assert found["runtime"].value == pytest.approx(900e-9)


def test_a_cpu_has_no_calls_of_a_runtime():
    made = samples(200e-9, 0.0, 300e-9, 0.0, "plain")
    here = {mode: {name: one for name, one in by.items() if name != "kernels"} for mode, by in made.items()}
    assert set(costs("plain", here, FRAMES)) == {"op", "annotation"}


@torch_only
@pytest.mark.torch
@pytest.mark.filterwarnings("default")
class TestHere:
    """On this machine's CPU."""

    @pytest.fixture
    def cpu(self) -> CallTimer:
        return CallTimer(find_device("cpu"))

    def test_it_runs(self, cpu: CallTimer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
        monkeypatch.setattr(observer, "OBSERVER_ROUNDS", 3)
        monkeypatch.setattr(observer, "LOOP_TURNS", 50)
        monkeypatch.setattr(observer, "RECORDING_MODES", ("with_stack", "record_shapes+with_stack"))
        records = observer.measure_observer(cpu, cpu.now() + 60)
        entries = [one for one in records if isinstance(one, MeasuredFigure)]
        assert all(one.group == "observer" and 0 < one.amount.value < 1e-2 for one in entries)
        # a call of a function costs at least tens of ns to record: the one figure that no noise hides
        assert {"python, with_stack", "python, record_shapes+with_stack"} <= {one.name for one in entries}
        assert not any(one.name.startswith("runtime") for one in entries)
        assert "USDT" not in capfd.readouterr().err

    def test_no_time_is_said(self, cpu: CallTimer, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(observer, "LOOP_TURNS", 5)
        records = observer.measure_observer(cpu, cpu.now() - 1)
        assert [type(one) for one in records] == [Skipped] * len(RECORDING_MODES)
        assert all("too few rounds" in one.why for one in records if isinstance(one, Skipped))

    @pytest.mark.parametrize("mode", ["plain", "with_stack"])
    def test_the_profile_function_is_given_back(self, cpu: CallTimer, mode: str):
        def hook(*_: object) -> None:
            return None

        before = sys.getprofile()
        sys.setprofile(hook)
        try:
            with observer.recording(cpu.device, mode):
                pass
            assert sys.getprofile() is hook
            with pytest.raises(ZeroDivisionError), observer.recording(cpu.device, mode):
                raise ZeroDivisionError
            assert sys.getprofile() is hook
        finally:
            sys.setprofile(before)

    def test_events_that_are_missing_are_said(self, cpu: CallTimer):
        calls = observer.loops(cpu.device)
        with observer.recording(cpu.device, "plain") as profiler:
            calls["views"]()
        with pytest.raises(NoEventsError, match="aten::view and gobrrr calibration"):
            observer._must_hold(profiler, calls)

    def test_each_loop_holds_the_events_that_the_arithmetic_counts_on(self, cpu: CallTimer):
        """Counted in the profiler's own table: one operation a view, none beside an annotation."""
        calls = observer.loops(cpu.device)
        for name, event in (("views", "aten::view"), ("annotations", observer.EMPTY_ANNOTATION)):
            with observer.recording(cpu.device, "plain") as profiler:
                for _ in range(7):
                    calls[name]()
            assert {one.key: one.count for one in profiler.key_averages()} == {event: 7}


def test_frames_are_counted():
    def two() -> None:
        len(())

    before = sys.getprofile()
    assert observer.frames_of(two) == 2
    assert observer.frames_of(observer._nothing) == 1
    assert sys.getprofile() is before


@torch_only
def test_it_comes_behind_all_that_the_host_decides():
    """What a profiler leaves in a driver must not touch those; what needs the compiler may have no time left at all."""
    names = [one.name for one in stages(find_device("cpu"))]
    at = names.index("the profiler")
    assert all(name.startswith("vector units") for name in names[at + 1 :])
    assert not any(name.startswith("vector units") for name in names[:at])


# -- what is kept, and shown -------------------------------------------------------------


def observed(**changes: float) -> Measurement:
    ns: Mapping[str, float] = {
        "op, plain": 800.0,
        "runtime, plain": 2_000.0,
        "op, record_shapes": 1_500.0,
        "op, record_shapes+with_stack": 3_000.0,
        "python, record_shapes+with_stack": 150.0,
        **changes,
    }
    more = [entry("observer", name, value * 1e-9, "s") for name, value in ns.items()]
    return h100(entries=(*h100().entries, *more))


def test_a_machine_holds_what_was_measured():
    found = machine_of(observed()).observer
    assert found is not None
    assert list(found.modes) == ["plain", "record_shapes", "record_shapes+with_stack"]
    assert found.modes["plain"].op_ns == pytest.approx(800)
    assert found.modes["plain"].runtime_ns == pytest.approx(2_000)
    assert found.modes["record_shapes"].runtime_ns is None
    assert found.modes["record_shapes+with_stack"].python_ns == pytest.approx(150)
    assert "NVIDIA H100" in found.source


def test_an_unsteady_figure_is_unknown():
    wide = entry("observer", "annotation, plain", 1e-6, "s", spread=0.8)
    unsteady = entry("observer", "op, with_stack", 1e-6, "s", spread=0.8)
    found = machine_of(h100(entries=(*observed().entries, wide, unsteady))).observer
    assert found is not None
    assert found.modes["plain"].annotation_ns is None
    assert "with_stack" not in found.modes


def test_an_older_cache_has_none():
    read = decode(msgspec.json.encode(h100()))
    assert machine_of(read).observer is None
    assert msgspec.json.decode(b'{"name": "old"}', type=Machine).observer is None


def test_a_newer_one_comes_back():
    one = machine_of(decode(msgspec.json.encode(observed())))
    assert msgspec.json.decode(msgspec.json.encode(one), type=Machine) == one
    assert machine.for_json(observed())["measured"]["entries"][-1]["group"] == "observer"


def shown(lines: list[Any]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def test_the_listing_shows_a_row_a_mode():
    page = terminal.page_for(Console(file=StringIO(), width=80))
    modes = {
        "plain": RecordingCost(op_ns=812, runtime_ns=2_040),
        "record_shapes+with_stack": RecordingCost(op_ns=3_000, annotation_ns=4_500, python_ns=151),
    }
    text = shown(listing.machine(Machine(name="m", observer=ObserverCosts(modes=modes, source="here")), page))
    (plain,) = [line for line in text.splitlines() if line.strip().startswith("plain")]
    assert "812 ns" in plain
    assert "launch 2.04 us" in plain
    assert "annotation" not in plain
    (stacks,) = [line for line in text.splitlines() if "with_stack" in line]
    assert "frame 151 ns" in stacks
    assert "source: here" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "profiler" not in shown(listing.machine(Machine(name="m"), page))


def test_the_measured_page_shows_them_without_a_warning_of_their_spread():
    page = terminal.page_for(Console(file=StringIO(), width=80))
    wide = entry("observer", "op, plain", 800e-9, "s", spread=0.4)
    text = shown(machine.pages([Measurement(environment=environment(), entries=(wide,))], page))
    assert "the profiler adds" in text
    assert "Wide spread" not in text
