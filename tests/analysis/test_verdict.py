"""From a budget to the regime and its certainty, by hand-made budgets of a step of 10 ms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.analysis.answer.verdict import Verdict, judge
from gobrrr.model.diagnosis import BudgetLine, Wall

WALL = 10e6
LINES = {
    "compute": ("compute", None),
    "memory": ("memory", None),
    "below compute": ("below_roof", "compute"),
    "below memory": ("below_roof", "memory"),
    "unpriced": ("unpriced", None),
    "communication": ("communication", None),
    "transfer": ("transfer", None),
    "launching": ("overhead", "launching"),
    "python": ("overhead", "python"),
    "drain": ("overhead", "sync_drain"),
    "input": ("overhead", "input"),
    "unexplained": ("overhead", "unexplained"),
}


def lines(shares: dict[str, float]) -> list[BudgetLine]:
    return [
        BudgetLine(line=LINES[name][0], cause=LINES[name][1], ns=share * WALL, share=share)  # type: ignore[arg-type]
        for name, share in shares.items()
    ]


def verdict(shares: dict[str, float], *, low: float = 0.95, high: float = 1.05, covered: float | None = 1.0,
            ahead: float | None = None, contradicted: float = 0.0, on_device: bool = True, wall: Wall | None = None,
            bounds: float = 0.0, lost: float = 0.0, on_host: bool = False) -> Verdict:  # fmt: skip
    """`low` and `high` as multiples of the wall."""
    given_wall = wall or Wall(value=WALL, low=low * WALL, high=high * WALL, how="estimated")
    return judge(
        lines(shares),
        given_wall,
        covered,
        None,
        ahead,
        contradicted,
        on_device,
        bounds=bounds,
        lost=lost,
        on_host=on_host,
    )


@pytest.mark.parametrize(
    ("shares", "regime"),
    [
        ({"compute": 0.6, "memory": 0.3, "launching": 0.1}, "compute"),
        ({"compute": 0.3, "below compute": 0.3, "memory": 0.4}, "compute"),
        ({"memory": 0.2, "below memory": 0.35, "compute": 0.45}, "memory"),
        ({"launching": 0.3, "python": 0.15, "drain": 0.1, "compute": 0.45}, "overhead"),
        ({"input": 0.6, "compute": 0.4}, "input"),
        ({"input": 0.3, "launching": 0.25, "compute": 0.45}, "input"),
        ({"input": 0.25, "launching": 0.3, "compute": 0.45}, "overhead"),
        ({"communication": 0.55, "compute": 0.45}, "communication"),
        ({"transfer": 0.55, "launching": 0.45}, "transfer"),
        ({"compute": 0.4, "memory": 0.4, "launching": 0.2}, "mixed"),
        ({"compute": 0.5, "memory": 0.5}, "mixed"),
        ({"unexplained": 0.7, "compute": 0.3}, "unknown"),
        ({"unexplained": 0.2, "launching": 0.4, "compute": 0.4}, "overhead"),
        ({"unpriced": 0.9, "launching": 0.1}, "unknown"),
        ({"unpriced": 0.3, "compute": 0.35, "memory": 0.35}, "unknown"),
        ({"unpriced": 0.15, "compute": 0.4, "memory": 0.45}, "mixed"),
        ({"unpriced": 0.4, "launching": 0.6}, "overhead"),
        ({"unpriced": 0.45, "communication": 0.55}, "communication"),
        ({}, "unknown"),
    ],
)
def test_the_regime_is_the_side_of_more_than_half(shares: dict[str, float], regime: str):
    assert verdict(shares).regime == regime


@given(st.lists(st.floats(0, 1), min_size=len(LINES), max_size=len(LINES)))
def test_what_is_not_priced_never_changes_a_regime_to_another(drawn: list[float]):
    """Whatever the unpriced part turns out to be, a regime that is named holds (or is mixed, on the fence)."""
    total = sum(drawn) or 1.0
    shares = {name: share / total for name, share in zip(LINES, drawn, strict=True)}
    named = verdict(shares).regime
    if named in ("unknown", "mixed"):
        return
    for side in ("compute", "memory"):
        settled = {**shares, side: shares[side] + shares["unpriced"], "unpriced": 0.0}
        assert verdict(settled).regime == named


def test_high_where_it_holds_over_the_whole_interval():
    assert verdict({"compute": 0.8, "launching": 0.2}).certainty == "high"
    assert verdict({"launching": 0.8, "compute": 0.2}).certainty == "high"


def test_medium_where_an_end_of_the_interval_says_otherwise():
    """At 0.85 of the wall the overhead of 60 % shrinks to 45 of 85: still more than half. At 0.75, to 35 of 75."""
    shares = {"launching": 0.6, "compute": 0.4}
    assert verdict(shares, low=0.85).certainty == "high"
    assert verdict(shares, low=0.75).certainty == "medium"


def test_medium_where_little_is_priced_and_the_kernels_decide():
    assert verdict({"compute": 0.6, "unpriced": 0.3, "launching": 0.1}, covered=0.6).certainty == "medium"


def test_what_the_kernels_do_does_not_matter_where_the_device_idles():
    assert verdict({"launching": 0.8, "unpriced": 0.2}, covered=0.0).certainty == "high"


def test_low_where_neither_holds():
    shares = {"compute": 0.52, "unpriced": 0.18, "launching": 0.3}
    assert verdict(shares, covered=0.7, high=1.5).certainty == "low"


def test_low_without_a_regime_a_wall_or_a_coverage():
    assert verdict({"unpriced": 1.0}).certainty == "low"
    assert verdict({"compute": 1.0}, covered=None).certainty == "low"
    nothing = Wall(value=None, low=None, high=None, how="unknown")
    assert verdict({"compute": 1.0}, wall=nothing).certainty == "low"


def test_communication_alone_needs_no_floor():
    assert verdict({"communication": 0.9, "launching": 0.1}, covered=None).certainty == "high"


@pytest.mark.parametrize(
    ("contradicted", "certainty"), [(0.0, "high"), (0.1, "high"), (0.11, "medium"), (0.3, "medium"), (0.31, "low")]
)
def test_kernels_faster_than_their_floor_speak_against_it(contradicted: float, certainty: str):
    found = verdict({"memory": 0.8, "launching": 0.2}, contradicted=contradicted)
    assert (found.regime, found.certainty) == ("memory", certainty)
    assert any("faster than their floor" in line for line in found.evidence) == (contradicted > 0.1)


def test_a_contradiction_raises_nothing():
    shares = {"compute": 0.52, "unpriced": 0.18, "launching": 0.3}
    assert verdict(shares, covered=0.7, high=1.5, contradicted=0.2).certainty == "low"


def test_a_host_that_runs_ahead_speaks_against_overhead():
    shares = {"launching": 0.8, "compute": 0.2}
    against = verdict(shares, ahead=0.9)
    assert against.certainty == "medium"
    assert any("speaks against" in line for line in against.evidence)
    with_it = verdict(shares, ahead=0.1)
    assert with_it.certainty == "high"
    assert not any("speaks against" in line for line in with_it.evidence)


def test_time_that_nothing_explains_is_said():
    assert any("no host event" in line for line in verdict({"unexplained": 0.3, "compute": 0.7}).evidence)
    assert not any("no host event" in line for line in verdict({"compute": 1.0}).evidence)


def test_time_that_nothing_explains_on_the_host_alone():
    found = verdict({"unexplained": 0.8, "unpriced": 0.2}, covered=None, on_device=False)
    assert any("no host event" in line for line in found.evidence)
    assert not any("device" in line for line in found.evidence)


@pytest.mark.parametrize(
    ("shares", "bounds", "certainty"),
    [
        ({"compute": 0.9, "launching": 0.1}, 0.1, "high"),
        ({"compute": 0.9, "launching": 0.1}, 0.11, "medium"),
        ({"memory": 0.9, "launching": 0.1}, 1.0, "medium"),
        ({"compute": 0.4, "memory": 0.4, "launching": 0.2}, 1.0, "medium"),
        ({"compute": 0.1, "launching": 0.9}, 1.0, "high"),
        ({"transfer": 0.9, "compute": 0.1}, 1.0, "high"),
    ],
)
def test_floors_that_rest_on_a_lower_bound_leave_what_needs_no_floor(
    shares: dict[str, float], bounds: float, certainty: str
):
    """A floor is then at most what it is said to be: how the device's time splits is less sure, not that it idles."""
    assert verdict(shares, bounds=bounds).certainty == certainty


@pytest.mark.parametrize(("lost", "certainty"), [(0.0, "high"), (0.1, "high"), (0.11, "medium"), (0.31, "low")])
@pytest.mark.parametrize("shares", [{"compute": 0.9, "launching": 0.1}, {"launching": 0.9, "compute": 0.1}])
def test_a_step_that_waited_for_processors_is_less_certain(shares: dict[str, float], lost: float, certainty: str):
    assert verdict(shares, lost=lost, on_host=True).certainty == certainty


def test_a_host_that_waited_says_nothing_about_a_step_that_its_gpu_bounds():
    assert verdict({"compute": 0.9, "launching": 0.1}, lost=0.5).certainty == "high"
    assert verdict({"launching": 0.9, "compute": 0.1}, lost=0.5).certainty == "low"
