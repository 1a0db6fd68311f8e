"""What to do, on the screen."""

from __future__ import annotations

from msgspec.structs import replace

from gobrrr.model.diagnosis import Diagnosis, Finding, Prescription
from gobrrr.report import advice, terminal
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
    assert text.splitlines()[1].split() == ["Q02", "shapes", "were", "not", "recorded", "-"]
    assert "no gain" not in text


def test_a_treatment_without_gain_for_a_stake_stays_in_the_list() -> None:
    launch = finding("O01", "launch-bound", (0, 2e6), ["compile"])
    text = plain(advice.prescriptions(of([launch], ("compile", "O01", (0, 0))), Page(), most=4))
    assert "no gain" in text


def test_a_treatment_that_is_listed_twice_is_one_change() -> None:
    both = [finding("M03", "normalization traffic", (0, 9e6), []), finding("M05", "layout copies", (2e6, 3e6), [])]
    one = of(both, ("channels-last", "M03", (0, 9e6)), ("channels-last", "M05", (2e6, 3e6)))
    text = plain(advice.prescriptions(one, Page(), most=4))
    assert "channels-last: do it" in text
    assert "channels-last: the same change as 1" in text


def test_the_speed_of_light_is_that_of_this_program() -> None:
    one = replace(samples.overhead(), speed_of_light_ns=1e6)
    assert terminal.light(one).startswith("Speed of light (in these dtypes, with these operations): 1.00 ms")
