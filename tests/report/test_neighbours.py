"""Findings at one place name each other, on the screen and on the page."""

from __future__ import annotations

from typing import Any

from gobrrr.model.diagnosis import Finding, Place, Prescription
from gobrrr.report import advice, html, terminal
from gobrrr.report.layout import Page, plain
from gobrrr.report.neighbours import neighbours
from tests.report import samples
from tests.report.test_held import BUILDING


def finding(code: str, place: int | None) -> Finding:
    return Finding(
        code=code, title=f"the title of {code}", where=[Place(op="aten::mm", count=20)], at_stake_ns=(1e6, 2e6),
        certainty="high", treatments=[], place=place,
    )  # fmt: skip


def of(*findings: Finding, **changes: Any) -> Any:
    return samples.diagnosis(places=BUILDING, held_by=3, findings=list(findings), prescriptions=[], **changes)


def codes(one: Any) -> dict[str, list[str]]:
    return {code: [each.code for each in others] for code, others in neighbours(one).items()}


def test_findings_on_one_line_are_neighbours_and_those_elsewhere_are_not():
    on_line, on_its_module, on_its_op, elsewhere = (
        finding(code, at) for code, at in (("O01", 4), ("M01", 5), ("C01", 6), ("O12", 3))
    )
    assert codes(of(on_line, on_its_module, on_its_op, elsewhere)) == {
        "O01": ["M01", "C01"],
        "M01": ["O01", "C01"],
        "C01": ["O01", "M01"],
        "O12": [],
    }


def test_the_program_as_a_whole_and_no_place_make_no_neighbours():
    assert codes(of(finding("O01", 0), finding("M01", 0), finding("Q01", None), finding("Q02", None))) == {}
    no_places = samples.diagnosis(findings=[finding("O01", 4), finding("M01", 4)])
    assert neighbours(no_places) == {}


def test_each_finding_says_so_wherever_it_is_shown():
    one = of(finding("O01", 4), finding("M01", 5))
    text, page = terminal.render(one), html.render(one)
    assert "the title of O01 (same place as M01)" in text
    assert "the title of M01 (same place as O01)" in text
    assert 'same place as <a href="#finding-M01">M01 the title of M01</a>' in page
    assert 'same place as <a href="#finding-O01">O01 the title of O01</a>' in page


def test_a_remedy_says_it_beside_where_its_finding_is():
    remedy = Prescription(
        treatment="fuse", finding="O01", predicted_saving_ns=(1e6, 2e6), how="compile(model)", mends=["O01"]
    )
    one = samples.diagnosis(
        places=BUILDING, held_by=3, findings=[finding("O01", 4), finding("M01", 5)], prescriptions=[remedy]
    )
    assert "aten::mm, 20 a step; same place as M01" in terminal.render(one)


def test_a_finding_that_is_not_on_the_screen_is_not_referred_to():
    """M01 is found at the place as well, but its remedy is not among those that are shown."""
    first, second = (
        Prescription(treatment=name, finding=code, predicted_saving_ns=(1e6, 2e6), how=f"{name}()", mends=[code])
        for name, code in (("fuse", "O01"), ("join", "M01"))
    )
    one = samples.diagnosis(
        places=BUILDING, held_by=3, findings=[finding("O01", 4), finding("M01", 5)], prescriptions=[first, second]
    )
    for most, said in ((1, False), (2, True)):
        lines = advice.prescriptions(one, Page(), most=most, named=advice.named_here(one, most, 0))
        assert ("same place as M01" in plain(lines)) is said
