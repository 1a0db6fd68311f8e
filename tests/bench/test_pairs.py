"""The pages of pairs and of fidelity are what their results say, and the promises that they make hold."""

from __future__ import annotations

import json

import pytest

from bench import fidelity, pairs

ROWS = json.loads(pairs.RESULTS.read_text())["pairs"]
REPLAYS = json.loads(fidelity.RESULTS.read_text())["rows"]


def test_the_pages_are_current():
    assert pairs.PAGE.read_text() == pairs.page(json.loads(pairs.RESULTS.read_text()))
    assert fidelity.PAGE.read_text() == fidelity.page(json.loads(fidelity.RESULTS.read_text()))


def test_every_handed_pair_is_there_and_within_ten_points_of_what_was_measured():
    handed = {row["name"]: row for row in ROWS if row["group"] == "handed"}
    assert len(handed) == 7
    assert all(pairs.beyond(row) <= 0.1 for row in handed.values())


def test_nothing_is_promised_for_sure_where_nothing_is_gained():
    negative = [row for row in ROWS if row["negative"]]
    assert negative
    assert all(row["promised"] <= 0.05 for row in negative)


def test_a_miss_is_counted_from_the_middle_and_beyond_the_range():
    row = {"predicted_saving": 0.5, "measured_saving": 0.35, "measured_range": [0.3, 0.4]}
    assert pairs.points(row) == pytest.approx(0.15)
    assert pairs.beyond(row) == pytest.approx(0.1)
    assert pairs.beyond({**row, "predicted_saving": 0.32}) == 0
    assert pairs.beyond({**row, "predicted_saving": 0.25}) == pytest.approx(0.05)


def test_a_pair_is_predicted_again_as_the_results_say():
    pair = next(one for one in pairs.pairs() if one.name == "pointwise_chain")
    told = next(row for row in ROWS if row["name"] == "pointwise_chain")
    assert pairs.measure(pair)["predicted_saving"] == pytest.approx(told["predicted_saving"], abs=1e-6)


def test_every_trace_replays_to_its_own_step():
    held = [row for row in REPLAYS if row["refused"] is None]
    assert len(held) >= 55
    assert all(abs(row["error"]) <= fidelity.PROMISED for row in held)


def test_a_trace_is_replayed_again_as_the_results_say():
    path = fidelity.OWN[0] / "mlp_tiny.faulty.json.gz"
    told = next(row for row in REPLAYS if row["name"] == "mlp_tiny.faulty")
    assert fidelity.measure(path)[0]["replayed_ns"] == pytest.approx(told["replayed_ns"], rel=1e-9)
