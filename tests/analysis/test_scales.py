"""The scaling test beside a regime, with times and work written by hand."""

from __future__ import annotations

import pytest

from gobrrr.analysis.answer.scales import scaled
from gobrrr.analysis.answer.verdict import judge
from gobrrr.model.diagnosis import BudgetLine, Regime, Wall
from gobrrr.model.live import Scaling


def grown(time: float, flop: float | None, bytes_: float | None) -> Scaling:
    """A batch of 2."""
    moved = () if bytes_ is None else (1e6, bytes_ * 1e6)
    return Scaling(points=((1, 1e6, 1e9), (2, time * 1e6, None if flop is None else flop * 1e9)), bytes=moved)


@pytest.mark.parametrize(
    ("time", "flop", "bytes_", "regime", "said", "against"),
    [
        (1.1, 2.0, 1.9, "overhead", "time x1.1 while FLOPs x2.0 and bytes x1.9: overhead", False),
        (1.1, 2.0, 1.9, "compute", ": overhead, which speaks against compute as the bound", True),
        (1.9, 2.0, 1.9, "compute", "time follows the work", False),
        (1.9, 2.0, 1.9, "overhead", "which speaks against overhead as the bound", True),
        # a few rows against a large matrix: its bytes stay, and so does its time; that is not overhead for sure
        (1.02, 2.0, 1.01, "memory", "reading the weights", False),
        (1.02, 2.0, 1.01, "overhead", "overhead, or reading", False),
        (1.5, 2.0, 1.5, "memory", "time follows the bytes, not the FLOPs", False),
        (1.5, 2.0, 1.5, "compute", "speaks against compute", True),
        (1.5, 2.0, 1.9, "compute", "in part", False),
        (1.05, 2.0, None, "memory", "overhead, or bytes that do not grow", False),
        (1.9, None, None, "overhead", "nothing follows", False),
        (1.0, 1.0, 1.0, "compute", "nothing follows", False),
    ],
)
def test_time_is_held_against_flop_and_bytes(
    time: float, flop: float | None, bytes_: float | None, regime: Regime, said: str, against: bool
):
    found = scaled(grown(time, flop, bytes_), regime)
    assert said in found.lines[0]
    assert found.lines[0].startswith("batch x2: time x")
    assert found.against is against


@pytest.mark.parametrize("scaling", [None, Scaling(points=((1, 1e6, 1e9),))])
def test_one_size_says_nothing(scaling: Scaling | None):
    assert scaled(scaling, "compute").lines == ()


def test_what_disagrees_lowers_the_certainty_and_is_printed():
    budget = [BudgetLine(line="compute", cause=None, ns=9e6, share=0.9)]
    budget += [BudgetLine(line="overhead", cause="launching", ns=1e6, share=0.1)]
    wall = Wall(value=10e6, low=9.9e6, high=10.1e6, how="measured")
    plain = judge(budget, wall, 1.0, None, None)
    doubted = judge(budget, wall, 1.0, None, None, scaling=grown(1.1, 2.0, 1.9))
    agreed = judge(budget, wall, 1.0, None, None, scaling=grown(1.9, 2.0, 1.9))
    assert (plain.certainty, doubted.certainty, agreed.certainty) == ("high", "medium", "high")
    assert "speaks against compute" in doubted.evidence[-1]
