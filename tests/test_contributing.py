"""The condition, the treatment and the cost rule of docs/contributing.md pass their tests as they are printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobrrr import conditions, cost, treatments
from gobrrr.cost import pointwise
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
FILES = {
    text.splitlines()[0].removeprefix("# "): text
    for _, text in re.findall(r"^(`{3,4})python\n(.*?)^\1$", PAGE, re.MULTILINE | re.DOTALL)
}
"""The text of each file that the page prints, by the path in its first line."""

ADDED = ((conditions, "m99_empty_repeat"), (treatments, "drop_repeat"))
"""The packages that the page adds a module to, and that module."""


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as it is once the page was followed."""
    for package, name in ADDED:
        path = f"src/gobrrr/{package.__name__.partition('.')[2]}/{name}.py"
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(FILES[path], encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        package.catalogue.cache_clear()
    exec(FILES["src/gobrrr/cost/pointwise.py"], vars(pointwise).copy())
    yield
    cost.unregister("mylib::squared_relu")
    for package, name in ADDED:
        sys.modules.pop(f"{package.__name__}.{name}")
        package.catalogue.cache_clear()


@pytest.mark.usefixtures("followed")
def test_what_the_page_adds_passes_the_tests_that_it_prints(tmp_path: Path) -> None:
    given: dict[str, Any] = {"__name__": "followed"}
    for path in ("tests/conditions/test_m99.py", "tests/cost/test_squared_relu.py"):
        exec(FILES[path].replace("from __future__ import annotations\n", ""), given)
    for number, test in enumerate(("a_copy_is_found_with_all_of_its_time", "where_the_step_waits_for_the_host")):
        folder = tmp_path / str(number)
        folder.mkdir()
        next(value for name, value in given.items() if name.startswith(f"test_{test}"))(folder)
    for counts in ("[2, 1]", "[1, 1, 1]", ""):
        given["test_a_repeat_that_does_something_is_healthy"](tmp_path, counts)
    given["test_squared_relu"]()


def test_each_path_that_the_page_names_is_there() -> None:
    paths = set(re.findall(r"`((?:src|tests|tools|bench)/[\w/.]+)`", PAGE))
    made = {path for path in FILES if not (ROOT / path).exists()}
    assert paths
    assert {path for path in paths - made if not (ROOT / path).exists()} == set()
