"""Nothing that a reader is to act on is cut: no answer has an ellipsis, and code to paste stands there in full.

What is by nature shortened: the names of kernels in the tables and charts of the page (each opens to the whole), a
function in the flame graph of the lab, and a cause that gobrrr has no word for, in the second column of the budget.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from gobrrr import api
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report import catalogues, demo, html, listing, notebook, terminal
from gobrrr.report import treated as treatment
from gobrrr.report import what_if as change
from gobrrr.report.layout import ASCII, UNICODE, Page, plain
from gobrrr.report.text import clean_lines
from tests.conftest import H100
from tests.report import samples

WIDTHS = (60, 80)
QUICK = ("gpt_eager_attn.faulty", "mlp_tiny.fixed")
TRACES = [
    pytest.param(path.name, marks=[] if path.name.startswith(QUICK) else [pytest.mark.slow], id=path.name)
    for path in sorted(H100.glob("*.json.gz"))
]
SECTIONS = re.compile(r'<section[^>]* id="(todo|findings|what-if)".*?</section>', re.DOTALL)
LONG_WAY = "compile:max-autotune-no-cudagraphs"


@cache
def answer(name: str) -> Diagnosis:
    """The answer for a shipped trace; with all what-ifs, which take seconds, in `make nightly`."""
    return api.diagnose(H100 / name, panel=not name.startswith(QUICK))


def squeezed(text: str) -> str:
    """Text without what wrapping changes: spaces and the signs in front of a comment."""
    return re.sub(r"[\s#]+", "", text)


@pytest.mark.parametrize("name", TRACES)
def test_a_shipped_answer_is_whole_at_any_width(name: str) -> None:
    one = answer(name)
    for width in WIDTHS:
        page = Page(width=width)
        shown = [terminal.render(one, width=width), *(plain(change.lines(one, page, each)) for each in one.what_ifs)]
        assert not [line for text in shown for line in text.splitlines() if "…" in line]
        ascii_lines = terminal.render(one, width=width, unicode=False).splitlines()
        assert not [line for line in ascii_lines if "..." in line.replace("(...", "").replace("DataLoader(", "")]


@pytest.mark.parametrize("name", TRACES)
def test_code_to_paste_is_on_the_screen_in_full_and_is_the_same_program(name: str) -> None:
    """Where a screen has no room for long code, it says which command prints it: that has each line."""
    one = answer(name)
    for width in WIDTHS:
        shown = terminal.render(one, width=width)
        first = next(iter(one.prescriptions), None)
        if first is None or "What to do" not in shown:
            continue
        if (where := f"lines of code: gobrrr explain {first.treatment}") in shown:
            assert len(clean_lines(first.how)) > 9, where
            shown = catalogues.explain(first.treatment)
        for line in clean_lines(first.how):
            code, _, comment = line.partition(" # ")
            assert squeezed(code) in squeezed(shown)
            assert squeezed(comment) in squeezed(shown)


@pytest.mark.parametrize("name", TRACES)
def test_the_page_and_the_notebook_cut_nothing_that_is_to_be_done(name: str) -> None:
    one = answer(name)
    found = [part.group(0) for part in SECTIONS.finditer(html.render(one))]
    assert found or not one.prescriptions
    assert not [part for part in [*found, str(notebook.render(one))] if "…" in part]


def test_what_stands_in_the_source_of_code_is_python() -> None:
    for one in samples.overhead().prescriptions:
        ast.parse(one.how)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_treat_and_its_ledger_are_whole(width: int, glyphs: object, tmp_path: Path) -> None:
    from gobrrr.trials.choosing import SearchOptions
    from gobrrr.trials.door import ledger
    from gobrrr.trials.ledger import Ledger
    from gobrrr.trials.treat import run
    from tests.trials.benches import FakeBench, candidate

    ways = [candidate(LONG_WAY, 0.4, code=f"x = f({', '.join('abcdefghijklmnopqrstuvwxyz')})"), candidate("b", 0.3)]
    found = run(FakeBench(ways, saved={LONG_WAY: 0.35}), "w.py:workload", SearchOptions(), Ledger.open(tmp_path))
    page = Page(width=width, glyphs=glyphs)  # type: ignore[arg-type]
    shown = plain(treatment.lines(found, page)) + plain(treatment.ledger_lines(ledger(tmp_path), page))
    assert "…" not in shown
    assert "..." not in shown
    assert shown.count(f" {LONG_WAY}\n") == 2
    assert max(map(len, plain(treatment.lines(found, page)).splitlines())) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_lists_are_whole(width: int) -> None:
    from gobrrr.hardware.table import load

    page = Page(width=width)
    machines = [plain(listing.machine(one, page)) for one in load()]
    truth = demo.Truth(regime="overhead", what="w " * 90, measured_ms=None)
    rows = [demo.DemoRow("a_rather_long_name_of_a_trace.faulty", samples.overhead(), truth)]
    shown = [plain(listing.codes(**api.codes(), page=page)), plain(demo.table(rows, page)), *machines]
    assert not [text for text in shown if "…" in text]
