"""The pages that are made by commands are those that the commands make now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bench import accuracy, pages
from tools import make_counting, make_lab, make_prediction, make_readme


@pytest.mark.parametrize(
    "files",
    [
        make_readme.files,
        make_lab.files,
        lambda: {accuracy.PAGE: accuracy.page(pages.read(accuracy.RESULTS))},
        lambda: {make_prediction.PAGE: make_prediction.page(pages.read(make_prediction.RESULTS_FILE))},
        lambda: {make_counting.PAGE: make_counting.page()},
    ],
    ids=["readme and manual", "lab", "accuracy", "prediction", "counting"],
)
def test_a_page_is_current(files: Callable[[], Mapping[Path, str]]) -> None:
    assert [path.name for path in pages.stale(files())] == []


def test_a_page_that_differs_is_named_by_a_check_and_written_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    assert pages.keep({page: "now"}, "python -m tools.make_page", check=True) == 1
    assert capsys.readouterr().out == "page.md is not current: run python -m tools.make_page\n"
    assert not page.exists()
    assert pages.keep({page: "now"}, "", check=False) == 0
    assert page.read_text() == "now"
    assert pages.keep({page: "now"}, "", check=True) == 0
