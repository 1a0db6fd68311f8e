"""Looking at a step within a budget, by a clock that each step moves on: 10 steps at the least, then a trial."""

from __future__ import annotations

import math

import pytest

from gobrrr.errors import UsageError
from gobrrr.trials import looking, pace
from gobrrr.trials.looking import RECORDING, TIMING, WARMING, DiagnosisProgress

PARTS = (
    [(WARMING, one) for one in range(4)] + [(TIMING, one) for one in (1, 2, 3)] + [(RECORDING, one) for one in (1, 2)]
)


class Told(list[str]):
    def __call__(self, stage: str, done: int, total: int) -> None:
        self.append(stage)


def looked(steps: list[float], within: float, *, spent: float = 0.0, first: bool = True) -> list[str]:
    """The stages that are told while these steps are run."""
    now = [0.0]
    told = Told()
    looks = DiagnosisProgress(told, within, spent, first=first, clock=lambda: now[0])
    for number, (stage, done) in enumerate(PARTS):
        if number:
            now[0] += steps[min(number, len(steps)) - 1]
        looks(stage, done, 3)
    return told


def needed(step: float, left: int, elapsed: float, budget: float) -> float:
    """By hand: what was spent, the steps that are left, and a trial, each of the latter with a quarter more; and of
    what the budget is larger by, 0.05 and 0.1 go elsewhere."""
    whole = elapsed + 1.25 * left * step + 1.25 * step * pace.trial_steps(step, compiles=True)
    return 10 * math.ceil((budget + (whole - budget) / 0.85) / 10)


def test_a_short_step_is_looked_at_and_nothing_is_said_of_it() -> None:
    assert looked([0.1], 20.0) == [stage for stage, _ in PARTS]


def test_a_step_of_3_seconds_leaves_no_room_for_a_trial_in_60_and_that_is_said_at_once() -> None:
    told = looked([3.0], 60.0)
    assert told[:2] == [WARMING, WARMING]  # of one step it is not known what it takes a second time
    assert pace.trial_steps(3.0, compiles=True) == 30
    assert needed(3.0, 8, 6.0, 60.0) == 170
    assert told[2] == f"{WARMING} (a trial needs --budget 170)"


@pytest.mark.parametrize(("once", "whole"), [(0.0, 120.0), (25.0, 150.0), (31.0, 120.0)])
def test_a_budget_that_has_room_for_what_is_measured_once_also_pays_for_it(once: float, whole: float) -> None:
    """A quarter of 120 s may go to it: 25 s are measured then, 31 s are not."""
    assert looking.enough(115.0, once_s=once) == whole


def test_with_what_is_kept_a_look_needs_no_trial_behind_it() -> None:
    assert looked([3.0], 60.0, first=False) == [stage for stage, _ in PARTS]


def test_steps_that_do_not_fit_end_it_at_the_second_one_with_the_budget_that_does() -> None:
    with pytest.raises(
        UsageError, match=r"a step takes about 3\.00 s: .* 16 s of 30 s were spent: --budget 190 has room"
    ):
        looked([3.0], 20.0, spent=10.0)


def test_a_first_step_that_compiles_ends_nothing_while_another_one_fits() -> None:
    assert looked([9.0, 0.1], 20.0) == [stage for stage, _ in PARTS]
    with pytest.raises(UsageError, match="--budget"):
        looked([11.0, 0.1], 20.0)


def test_steps_that_become_slower_later_end_it_then() -> None:
    """Another program takes the machine in the window: it is not waited until the budget is over."""
    with pytest.raises(UsageError, match=r"a step takes about 4\.50 s"):
        looked([1.0, 1.0, 1.0, 8.0], 30.0)


def test_one_slow_step_among_others_ends_nothing() -> None:
    assert looked([1.0, 1.0, 1.0, 8.0, 1.0], 30.0, first=False) == [stage for stage, _ in PARTS]
