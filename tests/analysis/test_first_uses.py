"""First uses of kernels, left out of the step: within an operation or in its launch; and what only looks like one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr.analysis.answer.study import Study, study
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.observe.trace import read_trace
from tests.traces import Trace

SHAPE = [[64, 64], [64, 64]]
LONG = 60_000.0


def of(folder: Path, body: Callable[[Trace, int], None], steps: int = 3) -> Study:
    trace = Trace(shapes=False)
    for number in range(steps):
        with trace.step(number):
            for each in range(20):
                trace.op("aten::add", SHAPE, 5.0, kernel=f"k{each}")
            body(trace, number)
    return study(read_trace(str(trace.write(folder))).ranks[0], None)


def wall(one: Study) -> float:
    (evidence,) = one.evidence
    assert isinstance(evidence, Evidence)
    return evidence.wall_ns


def usual(folder: Path, steps: int = 3) -> float:
    folder.mkdir()
    return wall(of(folder, lambda trace, _: trace.op("aten::mul", SHAPE, 5.0, kernel="new"), steps))


@pytest.mark.parametrize("at", [0, 1])
def test_what_an_operation_does_before_the_first_launch_of_a_kernel_is_left_out(tmp_path: Path, at: int):
    def body(trace: Trace, number: int) -> None:
        trace.op("aten::mul", SHAPE, 5.0, kernel="new" if number >= at else "k1", host_us=LONG if number == at else 20)

    one = of(tmp_path, body)
    assert one.once.length == pytest.approx(LONG * 1e3, rel=0.001)
    assert wall(one) == pytest.approx(usual(tmp_path / "usual"), rel=0.02)
    assert one.wall.high is not None
    assert one.wall.high < 2 * wall(one)


def test_so_is_a_launch_that_loads(tmp_path: Path):
    def body(trace: Trace, number: int) -> None:
        begin = len(trace.events)
        trace.op("aten::mul", SHAPE, 5.0, kernel="new" if number else "k1")
        if number == 1:  # the call, what is in it, and all that comes after it
            for event in trace.events[begin:]:
                event["dur"] += LONG if event["cat"] != "kernel" else 0
                event["ts"] += LONG if event["cat"] == "kernel" else 0
            trace.now += LONG
            trace.free += LONG

    one = of(tmp_path, body)
    assert one.once.length == pytest.approx(LONG * 1e3, rel=0.001)
    assert wall(one) == pytest.approx(usual(tmp_path / "usual"), rel=0.02)


def test_a_kernel_that_was_there_before_has_no_first_use(tmp_path: Path):
    def body(trace: Trace, number: int) -> None:
        trace.op("aten::mul", SHAPE, 5.0, kernel="k1", host_us=LONG if number == 1 else 20)

    assert not len(of(tmp_path, body).once.start)


def test_new_kernels_in_every_step_are_the_step(tmp_path: Path):
    def body(trace: Trace, number: int) -> None:
        trace.op("aten::mul", SHAPE, 5.0, kernel=f"new{number}", host_us=LONG)

    assert not len(of(tmp_path, body).once.start)


def test_a_wait_for_the_device_is_no_first_use(tmp_path: Path):
    def body(trace: Trace, number: int) -> None:
        if number == 1:
            trace.op("aten::add", SHAPE, LONG, kernel="k0")
        trace.op("aten::mul", SHAPE, 5.0, kernel="new", host_us=LONG if number == 1 else 20)

    assert not len(of(tmp_path, body).once.start)


def test_a_short_one_is_not_looked_at(tmp_path: Path):
    one = of(tmp_path, lambda trace, number: trace.op("aten::mul", SHAPE, 5.0, kernel="new", host_us=900))
    assert not len(one.once.start)


def test_one_step_alone_loses_them(tmp_path: Path):
    one = of(tmp_path, lambda trace, _: trace.op("aten::mul", SHAPE, 5.0, kernel="new", host_us=LONG), steps=1)
    assert wall(one) == pytest.approx(usual(tmp_path / "usual", 1), rel=0.03)  # one call's recording is in doubt
