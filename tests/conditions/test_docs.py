"""docs/conditions.md is made of the docstrings."""

from __future__ import annotations

import runpy
from pathlib import Path

from gobrrr.conditions import catalogue
from gobrrr.treatments import catalogue as treatments


def test_the_page_is_current(root: Path):
    made = runpy.run_path(str(root / "tools" / "make_docs.py"))["page"]()
    assert (root / "docs" / "conditions.md").read_text(encoding="utf-8") == made, "run python -m tools.make_docs"


def test_the_page_holds_every_code_and_name(root: Path):
    text = (root / "docs" / "conditions.md").read_text(encoding="utf-8")
    for heading in [f"## {one.code}: {one.title}" for one in catalogue()] + [f"## {one.name}" for one in treatments()]:
        assert f"\n{heading}\n" in text
