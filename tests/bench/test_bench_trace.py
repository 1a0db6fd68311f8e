"""What the places cost when a trace is read and diagnosed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.bench_trace import RESULTS, place_cost, shipped

MOST = 0.25
"""Generous: 15 % is asked for, and a test meets slow spells of its machine."""


@pytest.mark.slow
def test_the_places_take_little_of_reading_and_diagnosing_a_trace():
    assert place_cost(shipped(), 2)["share"] < MOST


def test_what_was_measured_is_within_what_is_asked_for():
    found = json.loads(Path(RESULTS).read_text())["places"]
    assert len(found["traces"]) >= 27
    assert found["share"] < 0.15


def test_the_cost_is_a_part_of_the_whole():
    smallest = min(shipped(), key=lambda path: path.stat().st_size)
    found = place_cost([smallest], 1)
    whole, places = found["traces"][smallest.name]
    assert 0 < places < whole
    assert found["share"] == pytest.approx(places / whole, abs=1e-3)
