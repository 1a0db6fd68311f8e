"""The pairs that were recorded on an H100: what is predicted of the fixed step from the faulty one's trace alone."""

from __future__ import annotations

import json

import pytest

from bench.pair_data import pairs
from bench.pairs import MISSES, MOST_ON_NEGATIVE, PAGE, RESULTS, WITHIN, beyond, first_sight, measure, page
from tests.spread import spread

FURTHER = {one.name: one for one in pairs() if one.group in ("further", "second")}


@pytest.mark.parametrize("name", spread(sorted(FURTHER)))
def test_a_saving_is_within_ten_points_of_what_was_measured(name: str):
    row = measure(FURTHER[name])
    if row["negative"]:
        assert row["promised"] <= MOST_ON_NEGATIVE
    else:
        assert beyond(row) <= WITHIN or name in MISSES


def test_the_page_is_what_its_results_say():
    assert PAGE.read_text() == page(json.loads(RESULTS.read_text()))


@pytest.mark.parametrize(("group", "met", "of"), [("further", 13, 20), ("second", 10, 11)])
def test_the_first_sight_is_kept(group: str, met: int, of: int):
    mine = [row for row in first_sight(group) if not row["negative"]]
    assert len(mine) == of
    assert sum(beyond(row) <= WITHIN for row in mine) == met
