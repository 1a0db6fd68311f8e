"""A long recording is studied in part: typical steps, with an answer like that of all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gobrrr.analysis.answer import representative as part
from gobrrr.analysis.answer.representative import representative
from gobrrr.doors import pipeline
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.events import EventKind
from gobrrr.model.profile import Profile
from gobrrr.observe.trace import read_trace
from tests.traces import Trace

SQUARE = ((1024, 1024), (1024, 1024))
STEPS = 24
Body = Callable[[Trace, int], None]


def launch_bound(trace: Trace, number: int) -> None:
    """Short kernels and a wait; every sixth step also saves something for a while."""
    for _ in range(4):
        trace.op("aten::mm", SQUARE, 4.0, kernel="gemm")
        trace.op("aten::add", SQUARE, 2.0, kernel="add")
    trace.item()
    if number % 6 == 0:
        trace.host("save", 5_000.0)


def device_bound(trace: Trace, number: int) -> None:
    """Kernels that take so long that the host is done with all steps before the device is with two."""
    for _ in range(3):
        trace.op("aten::mm", SQUARE, 100.0, kernel="gemm")
    trace.op("aten::add", SQUARE, 50.0, kernel="add")


def recorded(folder: Path, body: Body, *, marked: bool = True, steps: int = STEPS) -> Profile:
    trace = Trace()
    for number in range(steps):
        if marked:
            with trace.step(number):
                body(trace, number)
        else:
            body(trace, number)
    trace.synchronize()
    return read_trace(trace.write(folder))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Already these recordings are long, and five of their steps are enough."""
    monkeypatch.setattr(part, "MOST_EVENTS", 100)
    monkeypatch.setattr(part, "PART_EVENTS", 10)


def in_full(profile: Profile) -> Diagnosis:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "MOST_EVENTS", 10**9)
        return pipeline.diagnose(profile)


def test_a_short_recording_is_studied_whole(tmp_path: Path) -> None:
    profile = recorded(tmp_path, launch_bound)
    assert representative(profile) is profile


@pytest.mark.usefixtures("small")
def test_the_steps_are_typical_ones(tmp_path: Path) -> None:
    chosen = representative(recorded(tmp_path, launch_bound))
    events = chosen.ranks[0].events
    assert "save" not in {events.names[name] for name in np.unique(events.name)}
    (note,) = chosen.notes
    assert note.startswith("5 of the 24 steps were studied, 2 to 6: their time is the nearest to that of the median")
    assert note.endswith(": what makes some steps longer was not looked at")
    assert representative(chosen) is chosen


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("body", [launch_bound, device_bound])
def test_the_answer_is_that_of_a_typical_step(tmp_path: Path, body: Body, marked: bool) -> None:
    profile = recorded(tmp_path, lambda trace, _: body(trace, 1), marked=marked)
    found, whole = pipeline.diagnose(profile), in_full(profile)
    assert found.steps == 5 < whole.steps == STEPS
    assert not any("longer was not looked at" in note for note in found.notes)
    assert found.unprofiled_wall_ns.value == pytest.approx(whole.unprofiled_wall_ns.value, rel=0.03)
    assert sum(line.ns for line in found.budget) == pytest.approx(found.unprofiled_wall_ns.value, rel=1e-9)
    assert found.regime == whole.regime
    assert [one.code for one in found.findings] == [one.code for one in whole.findings]
    assert found.totals.launches == whole.totals.launches
    assert found.devices == whole.devices  # of all that was recorded
    assert not any("launched before the recording" in note for note in found.notes)


@pytest.mark.usefixtures("small")
def test_work_that_was_still_to_do_keeps_its_launch(tmp_path: Path) -> None:
    profile = recorded(tmp_path, device_bound)
    events = representative(profile).ranks[0].events
    called = set(events.correlation[events.of(EventKind.RUNTIME)].tolist())
    kernels = events.correlation[events.of(EventKind.KERNEL)].tolist()
    assert set(kernels) <= called
    assert len(kernels) > 5 * 4  # those of the five steps, and some from before


@pytest.mark.usefixtures("small")
def test_what_lies_outside_of_the_steps_is_left_out(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            launch_bound(trace, 1)
    trace.synchronize()
    alone = read_trace(trace.write(tmp_path))
    for _ in range(20):
        launch_bound(trace, 1)
    profile = read_trace(trace.write(tmp_path))
    found, wanted = pipeline.diagnose(profile), in_full(alone)
    assert (found.steps, found.wall_ns) == (wanted.steps, wanted.wall_ns)
    assert found.unprofiled_wall_ns == wanted.unprofiled_wall_ns
    assert found.budget == wanted.budget
    assert found.devices != wanted.devices
    (note,) = found.notes
    assert note.endswith("recorded events outside of the steps were not studied")


@pytest.mark.usefixtures("small")
def test_ranks_are_studied_in_the_same_steps_or_whole(tmp_path: Path) -> None:
    first, second = (recorded(tmp_path, body).ranks[0] for body in (launch_bound, device_bound))
    other = recorded(tmp_path, device_bound, steps=STEPS - 1).ranks[0]
    together = Profile(target="ranks", origin="trace", ranks=(first, second))
    chosen = [rank.events.names[name] for rank in representative(together).ranks for name in np.unique(rank.events.name)
              if rank.events.names[name].startswith("ProfilerStep")]  # fmt: skip
    assert len(chosen) == 10
    assert sorted(chosen[:5]) == sorted(chosen[5:])
    apart = Profile(target="ranks", origin="trace", ranks=(first, other))
    assert representative(apart) is apart


@pytest.mark.usefixtures("small")
def test_a_recording_without_steps_is_studied_whole(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(60):
        trace.op("aten::mm", SQUARE, 4.0 + number, kernel=f"gemm{number * number % 61}")
    profile = read_trace(trace.write(tmp_path))
    assert len(profile.ranks[0].events) > part.MOST_EVENTS
    assert representative(profile) is profile
