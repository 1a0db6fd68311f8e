"""What the page is made of: the vendored library is what VENDOR.md says, and everything is shipped."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

import pytest

from gobrrr.report import html
from gobrrr.report.page import machine

ASSETS = files("gobrrr.report") / "assets"
VENDOR = (ASSETS / "VENDOR.md").read_text(encoding="utf-8")
SUMS = re.findall(r"\| `([0-9a-f]{64})` \| `([^`]+)` \|", VENDOR)


@pytest.mark.parametrize(("digest", "name"), SUMS, ids=[name for _, name in SUMS])
def test_a_vendored_file_is_the_one_that_was_recorded(digest: str, name: str) -> None:
    assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == digest


def test_every_vendored_file_is_recorded() -> None:
    assert {f"echarts/{path.name}" for path in (ASSETS / "echarts").iterdir()} == {name for _, name in SUMS}


def test_the_library_is_of_the_version_that_is_named() -> None:
    version = re.search(r"\| 6\.\d+\.\d+ \|", VENDOR)
    assert version
    number = version.group().strip("| ")
    assert f"Apache ECharts {number}" == machine.ECHARTS
    assert f'version="{number}"' in (ASSETS / "echarts/echarts.min.js").read_text(encoding="utf-8")


def test_nothing_inlined_ends_its_element_or_asks_for_a_file() -> None:
    for name in ("echarts/echarts.min.js", *(f"{script}.js" for script in html.SCRIPTS)):
        text = (ASSETS / name).read_text(encoding="utf-8")
        assert "</script" not in text.lower()
        assert "<!--" not in text
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style
    assert "</style" not in style


def test_every_script_of_the_page_is_joined() -> None:
    assert {path.name for path in ASSETS.iterdir() if path.name.endswith(".js")} == {
        f"{name}.js" for name in html.SCRIPTS
    }


def test_every_colour_of_a_class_is_defined_in_both_themes() -> None:
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"\{([^{}]*)\}", style) if "--compute:" in block]
    assert len(blocks) == 3  # light, dark by the system, dark by choice
    wanted = set(re.findall(r"--c: var\((--[\w-]+)\)", style))
    for block in blocks:
        assert wanted <= set(re.findall(r"(--[\w-]+):", block))
    assert blocks[1].split() == blocks[2].split()
