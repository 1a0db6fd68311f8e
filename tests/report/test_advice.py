"""What to do, on the screen."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from gobrrr.model.diagnosis import Diagnosis, Finding, Prescription
from gobrrr.report import advice, terminal
from gobrrr.report.json import decode
from gobrrr.report.layout import Page, plain
from tests.report import samples


def finding(code: str, title: str, stake: tuple[float, float], treatments: list[str]) -> Finding:
    return Finding(code=code, title=title, where=[], at_stake_ns=stake, certainty="high", treatments=treatments)


def of(findings: list[Finding], *given: tuple[str, str, tuple[float, float]]) -> Diagnosis:
    prescriptions = [
        Prescription(treatment=name, finding=code, predicted_saving_ns=saving, how="do it")
        for name, code, saving in given
    ]
    return replace(samples.overhead(), findings=findings, prescriptions=prescriptions)


MEASURED = finding("Q02", "shapes were not recorded", (0, 0), ["record-shapes"])


def test_what_is_about_the_measurement_is_found_and_not_to_be_done() -> None:
    one = of([MEASURED], ("record-shapes", "Q02", (0, 0)))
    assert advice.prescriptions(one, Page(), most=4) == []
    text = plain(advice.other_findings(one, Page(), most=4))
    assert text.startswith(" Nothing to do was found: ")
    assert text.endswith("\n About the measurement, not the program: Q02 shapes were not recorded.")
    assert "no gain" not in text


def test_a_treatment_without_gain_is_not_to_be_done_and_its_finding_is_shown_with_its_cost() -> None:
    launch = finding("O01", "launch-bound", (0, 2e6), ["compile", "cuda-graph"])
    one = of([launch], ("cuda-graph", "O01", (0, 1e6)), ("compile", "O01", (0, 0)))
    assert "compile" not in plain(advice.prescriptions(one, Page(), most=4))
    alone = of([launch], ("compile", "O01", (-1e6, 0)))
    assert advice.prescriptions(alone, Page(), most=4) == []
    text = plain(advice.other_findings(alone, Page(), most=4))
    assert "Found, but no remedy is predicted to save time" in text
    assert "0 to 2.00 ms" in text


NORMS = finding("M03", "normalization traffic", (0, 9e6), ["compile"])
COPIES = finding("M05", "layout copies", (2e6, 3e6), ["compile", "channels-last"])


def remedy(name: str, *mends: tuple[str, float], saves: tuple[float, float]) -> Prescription:
    codes = [code for code, _ in mends]
    return Prescription(
        treatment=name, finding=codes[0], predicted_saving_ns=saves, how="do it", mends=codes,
        mends_ns=[ns for _, ns in mends],
    )  # fmt: skip


def test_a_remedy_of_several_findings_stands_once_with_all_that_it_mends() -> None:
    both = remedy("compile", ("M03", 4e6), ("M05", 2.5e6), saves=(1e6, 5e6))
    one = replace(of([NORMS, COPIES]), prescriptions=[both])
    text = " ".join(plain(advice.prescriptions(one, Page(), most=4)).split())
    assert text.count("compile: do it") == 1
    assert "1 compile: do it 1.00 to 5.00 ms" in text
    assert "mends normalization traffic (M03; 4.00 ms alone), layout copies (M05; 2.50 ms alone)" in text
    assert advice.other_findings(one, Page(), most=4) == []


def test_a_second_remedy_of_a_finding_has_the_findings_name_and_says_where_its_place_is() -> None:
    first, second = remedy("compile", ("M05", 3e6), saves=(2e6, 3e6)), remedy("b", ("M05", 1e6), saves=(1e6, 1e6))
    one = replace(of([COPIES]), prescriptions=[first, second])
    text = plain(advice.prescriptions(one, Page(), most=4))
    assert "2  b: do it" in text
    assert "mends layout copies (M05; where: see 1)" in text
    assert "savings do not add up" in text


def test_a_saved_file_without_a_list_of_what_a_remedy_mends_is_read() -> None:
    old = of([NORMS], ("compile", "M03", (0, 9e6)))
    raw = msgspec.json.decode(msgspec.json.encode(old))
    for one in raw["prescriptions"]:
        del one["mends"], one["mends_ns"]
    read = decode(msgspec.json.encode(raw))
    assert [one.mends for one in read.prescriptions] == [["M03"]]
    assert plain(advice.prescriptions(read, Page(), most=4)).endswith("mends normalization traffic (M03)")


def test_the_speed_of_light_is_that_of_this_program() -> None:
    one = replace(samples.overhead(), speed_of_light_ns=1e6)
    assert terminal.light(one).startswith("Speed of light (the least time for this work in its number types): 1.00 ms")
