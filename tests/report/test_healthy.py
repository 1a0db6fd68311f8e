"""A step with nothing to do says so, with what bounds it; and the terminal shows all of an answer when asked."""

from __future__ import annotations

import re

import pytest

from gobrrr.model.diagnosis import Finding
from gobrrr.report import html, terminal
from tests.analysis.tables import diagnosis
from tests.conftest import H100
from tests.report import samples


def said(text: str) -> str:
    """Without line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("pointwise_chain.fixed", "moving bytes at the machine's roof takes 93 % of the step; only moving fewer bytes"),
        ("mlp_tiny.fixed", "most of the step is kernels whose least time is unknown (88 %)"),
    ],
)
def test_a_healthy_shipped_step_ends_with_nothing_to_do_and_its_bound(name: str, bound: str) -> None:
    text = said(terminal.render(diagnosis(H100 / f"{name}.json.gz")))
    assert "Nothing to do was found: " in text
    assert bound in text
    assert "conditions could not be checked" in text


def test_a_finding_about_the_measurement_alone_is_nothing_to_do() -> None:
    about = Finding(
        code="Q01",
        title="the profiler inflates this trace",
        where=[],
        at_stake_ns=(0, 0),
        certainty="high",
        treatments=[],
    )
    assert "Nothing to do was found" in terminal.render(samples.diagnosis(findings=[about], prescriptions=[]))


def test_a_finding_that_costs_time_is_something_to_do() -> None:
    costly = Finding(code="O12", title="logging", where=[], at_stake_ns=(0, 5e6), certainty="high", treatments=[])
    assert "Nothing to do" not in terminal.render(samples.diagnosis(findings=[costly], prescriptions=[]))


def test_the_page_says_it_too() -> None:
    page = html.render(samples.diagnosis(findings=[], prescriptions=[]))
    assert "Nothing to do was found" in page


def test_all_shows_what_a_screen_has_no_room_for() -> None:
    one = diagnosis(H100 / "gpt_eager_attn.faulty.json.gz")
    screen, whole = terminal.render(one), terminal.render(one, whole=True)
    assert "and 1 more remedy: --all shows all" in screen
    assert "--all" not in whole
    for each in one.prescriptions:
        assert re.search(rf"\d  {re.escape(each.treatment)}\b", whole)
    for fact in one.findings[0].evidence:
        assert said(fact) in said(whole)
