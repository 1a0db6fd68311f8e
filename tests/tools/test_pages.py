"""The pages that are made by commands are those that the commands make now."""

from __future__ import annotations

from bench import accuracy
from tools import make_counting, make_lab, make_prediction, make_readme


def test_the_blocks_of_the_readme_and_the_manual_are_current() -> None:
    assert make_readme.stale() == {}


def test_the_accuracy_page_is_current() -> None:
    assert accuracy.PAGE.read_text() == accuracy.page(accuracy.json.loads(accuracy.RESULTS.read_text()))


def test_the_labs_pages_are_current() -> None:
    assert [path.name for path, text in make_lab.files().items() if path.read_text() != text] == []


def test_the_page_of_predictions_is_current() -> None:
    assert make_prediction.main(["--check"]) == 0


def test_the_page_of_counting_is_current() -> None:
    assert make_counting.PAGE.read_text() == make_counting.page()
