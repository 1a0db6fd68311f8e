"""A step that is slower without the profiler than with it: a disagreement, told and weighed."""

from __future__ import annotations

import pytest

from gobrrr.analysis.answer.caveats import of_times, unmatched
from gobrrr.analysis.answer.verdict import judge
from gobrrr.model.diagnosis import BudgetLine, Wall

MS = 1e6


def measured(value: float, low: float, high: float) -> Wall:
    return Wall(value=value * MS, low=low * MS, high=high * MS, how="measured")


def test_24_ms_without_and_1_67_with_the_profiler_is_said_before_the_numbers() -> None:
    wall = measured(24.0, 20.0, 30.0)
    [said] = of_times(wall, 1.67 * MS)
    assert "without the profiler (24.0 ms) than with it (1.67 ms)" in said
    assert unmatched(wall, 1.67 * MS) == pytest.approx(1 - 1.67 / 24)


@pytest.mark.parametrize(
    ("wall", "recorded_ms"),
    [
        (measured(24.0, 20.0, 30.0), 61.0),  # recording costs time
        (measured(24.0, 1.5, 30.0), 1.67),  # within the spread of the steps
        (measured(24.0, 23.9, 24.1), 23.0),  # 4 % less: no more than figures repeat
        (Wall(value=24 * MS, low=20 * MS, high=30 * MS, how="estimated"), 1.67),  # from the recording itself
        (Wall(value=None, low=None, high=None, how="unknown"), 1.67),
    ],
    ids=["slower recorded", "within the spread", "as good as equal", "estimated", "unknown"],
)
def test_what_recording_or_the_spread_explains_is_not_remarked(wall: Wall, recorded_ms: float) -> None:
    assert of_times(wall, recorded_ms * MS) == []


@pytest.mark.parametrize(("share", "certainty"), [(0.0, "high"), (0.05, "high"), (0.2, "medium"), (0.9, "low")])
def test_the_more_of_the_step_the_recording_lacks_the_less_certain_is_the_verdict(share: float, certainty: str) -> None:
    budget = [BudgetLine(line="memory", cause=None, ns=9 * MS, share=0.9),
              BudgetLine(line="overhead", cause="launching", ns=1 * MS, share=0.1)]  # fmt: skip
    verdict = judge(budget, measured(10, 9.9, 10.1), 1.0, None, None, unmatched=share)
    assert verdict.certainty == certainty
