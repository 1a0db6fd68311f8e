"""What is expected of a change and its interval: by hand from quantiles, and the laws that no fit may break."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.analysis.replay.fitted import ResidualSpread
from gobrrr.analysis.replay.predictive import (
    BATCH_MECHANISM,
    COMPILED_MECHANISM,
    GRAPH_MECHANISM,
    NARROWER_MECHANISM,
    OTHER_MECHANISM,
    ReplayedSaving,
    mechanism_of,
    predicted,
    spread_of,
)


def spread(low: float, middle: float, high: float, *, device: str = "cuda", mechanism: str = "") -> ResidualSpread:
    return ResidualSpread(device=device, mechanism=mechanism, points=9, workloads=9, low=low, middle=middle,
                  high=high, least=low, most=high)  # fmt: skip


def replay(
    expected: float, low: float, high: float, touched: float, mechanism: str = GRAPH_MECHANISM
) -> ReplayedSaving:
    return ReplayedSaving(expected, low, high, touched, mechanism, "cuda")


def test_quantiles_are_of_the_scale_of_what_is_touched():
    one = replay(0.3, 0.3, 0.3, 0.99)
    assert one.scale == pytest.approx(math.sqrt(1.0 * (0.3 + 0.3)))
    expected, low, high = predicted(one, [spread(-0.1, 0.05, 0.2)])
    assert (expected, low, high) == (
        pytest.approx(0.3 + 0.05 * one.scale),
        pytest.approx(0.3 - 0.1 * one.scale),
        pytest.approx(0.3 + 0.2 * one.scale),
    )


def test_no_more_is_saved_than_what_is_touched():
    assert predicted(replay(0.3, 0.3, 0.3, 0.32), [spread(-0.1, 0.4, 0.9)]) == (
        pytest.approx(0.31),
        pytest.approx(0.3 - 0.1 * math.sqrt(0.33 * 0.6)),
        0.32,
    )


def test_no_step_of_nothing_is_expected():
    """A step that the replay leaves 5 % of: half of that is the least that is expected to be left."""
    expected, _, high = predicted(replay(0.95, 0.9, 0.96, 1.0), [spread(-0.1, 0.3, 0.9)])
    assert expected == pytest.approx(0.975)
    assert high == 1.0


def test_the_replay_s_own_ends_are_in_the_interval():
    _, low, high = predicted(replay(0.4, 0.0, 0.6, 0.9, COMPILED_MECHANISM), [spread(-0.01, 0.0, 0.01)])
    assert (low, high) == (0.0, 0.6)


def test_what_touches_nothing_saves_what_the_replay_says():
    assert predicted(replay(0.0, 0.0, 0.0, 0.0), [spread(-0.1, 0.05, 0.2)]) == (0.0, 0.0, 0.0)


def test_where_nothing_was_fitted_the_replay_stands():
    assert predicted(replay(0.3, 0.2, 0.4, 0.9), []) == (0.3, 0.2, 0.4)
    assert predicted(replay(0.3, 0.2, 0.4, 0.9), [spread(-0.1, 0.0, 0.1, device="cpu")]) == (0.3, 0.2, 0.4)


def test_the_narrowest_group_counts():
    groups = [spread(-0.3, 0.0, 0.3), spread(-0.2, 0.0, 0.2, mechanism=GRAPH_MECHANISM)]
    one = replay(0.3, 0.3, 0.3, 0.9)
    assert spread_of(one, groups) == groups[1]
    assert spread_of(replay(0.3, 0.3, 0.3, 0.9, COMPILED_MECHANISM), groups) == groups[0]


@given(
    st.floats(-2, 1), st.floats(0, 2), st.floats(0, 2), st.floats(0, 1), st.floats(-1, 1), st.floats(0, 1),
    st.floats(0, 1),
)  # fmt: skip
def test_low_expected_high_in_this_order_and_none_above_what_is_touched(
    expected: float, below: float, above: float, touched: float, middle: float, down: float, up: float
):
    one = replay(expected, expected - below, min(expected + above, 1.0), touched)
    told, low, high = predicted(one, [spread(middle - down, middle, middle + up)])
    if touched > 0:
        assert low <= told <= high <= touched


@pytest.mark.parametrize(
    ("names", "work", "mechanism"),
    [
        (["cuda-graph:model"], 1.0, GRAPH_MECHANISM),
        (["bf16-autocast", "compile", "cuda-graph:compiled"], 1.0, GRAPH_MECHANISM),
        (["compile", "fused-optimizer"], 1.0, COMPILED_MECHANISM),
        (["tf32"], 1.0, NARROWER_MECHANISM),
        (["remove-sync"], 1.0, OTHER_MECHANISM),
        (["larger-batch=4"], 4.0, BATCH_MECHANISM),
    ],
)
def test_what_a_set_works_by(names: list[str], work: float, mechanism: str):
    assert mechanism_of(names, work) == mechanism


def test_the_shipped_fit_is_used():
    graph = replay(0.5, 0.49, 0.51, 0.6)
    assert predicted(graph) != (0.5, 0.49, 0.51)
