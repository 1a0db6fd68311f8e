"""The flame graph of the page: its columns are the places. test_html_browser.py draws, zooms and searches it."""

from __future__ import annotations

from gobrrr.report import html
from gobrrr.report.page.flame import flame_data
from tests.report import samples
from tests.report.test_held import BUILDING


def test_the_columns_are_the_places():
    texts: list[str] = []

    def name(text: str) -> int:
        texts.append(text)
        return len(texts) - 1

    data = flame_data(samples.diagnosis(places=BUILDING, held_by=3), name)
    assert data["parent"] == [-1, 0, 1, 2, 1, 4, 5, 6]
    assert data["own"] == [one.own_ns for one in BUILDING]
    assert texts[data["name"][3]] == "tensor()"
    assert [data["sorts"][one]["name"] for one in data["sort"]][-2:] == ["launching", "the device works"]


def test_a_page_has_it_where_there_are_places():
    assert 'id="flame"' in html.render(samples.diagnosis(places=BUILDING, held_by=3))
    without = html.render(samples.diagnosis())
    assert 'id="flame"' not in without
    assert 'href="#flame"' not in without
