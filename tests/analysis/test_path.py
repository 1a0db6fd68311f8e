"""What a change is worth on the wall, by hand."""

from __future__ import annotations

import pytest

from gobrrr.analysis.findings.path import StepPath, WallSpread

GPU = StepPath(wall=100.0, busy=60.0, host=80.0, launches=10.0)
CPU = StepPath(wall=100.0, busy=60.0, host=40.0, launches=10.0, serial=True)


def test_a_shorter_device_saves_what_the_host_leaves():
    # the step then takes the host's 80; a host that is slower by half leaves nothing
    assert GPU.device_saving(30.0, 30.0) == (0.0, 20.0)


def test_a_processor_that_is_both_saves_all_of_it():
    assert CPU.device_saving(30.0, 40.0) == (30.0, 40.0)
    assert CPU.device_saving(70.0, 80.0) == (60.0, 60.0)


@pytest.mark.parametrize("path", [GPU, CPU])
def test_a_shorter_host_saves_the_idle_time_at_most(path: StepPath):
    assert path.host_saving(10.0, 90.0) == (10.0, 40.0)


def test_an_uncertain_wall_takes_from_the_low_end():
    path = StepPath(wall=100.0, busy=60.0, host=80.0, launches=10.0, spread=WallSpread(15.0, 20.0))
    assert path.host_saving(20.0, 30.0) == (5.0, 30.0)
    assert path.at_most(30.0) == pytest.approx(30.0 * 60.0 / 40.0)


def test_a_change_that_shortens_host_and_device_is_not_hidden_behind_either() -> None:
    even = StepPath(wall=100.0, busy=92.0, host=98.0, launches=50)
    assert even.device_saving(0.0, 20.0) == (0.0, 2.0)  # the host alone allows no more
    assert even.device_saving(0.0, 20.0, host_less=15.0) == (0.0, 17.0)
    assert even.device_saving(0.0, 20.0, host_less=50.0) == (0.0, 20.0)
    waiting = StepPath(wall=100.0, busy=40.0, host=98.0, launches=50)
    assert waiting.device_saving(0.0, 20.0, host_less=15.0) == (0.0, 2.0)  # a fused kernel there only waits
