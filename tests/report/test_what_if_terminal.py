"""One what-if on the screen: its numbers in words, at any width, and said plainly where it takes longer."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from gobrrr import units
from gobrrr.model.diagnosis import BudgetLine, Diagnosis, Interval, WhatIf
from gobrrr.report import what_if
from gobrrr.report.layout import ASCII, Page, plain
from tests.report import samples
from tests.report.what_ifs import OTHER, SLOW, with_what_ifs

ONE = with_what_ifs(samples.overhead())


def shown(one: Diagnosis, entry: WhatIf, page: Page | None = None) -> str:
    return plain(what_if.lines(one, page or Page(), entry))


def found(names: list[str], machine: str | None = None) -> WhatIf:
    return next(one for one in ONE.what_ifs if one.treatments == names and one.machine == machine)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("at", range(len(ONE.what_ifs)))
def test_fits_the_screen(width: int, at: int) -> None:
    text = shown(ONE, ONE.what_ifs[at], Page(width=width))
    assert max(map(cell_len, text.splitlines())) <= width


def test_says_what_where_and_how_much() -> None:
    entry = found(["compile", "cuda-graph"], OTHER)
    text = shown(ONE, entry)
    first, second, *_ = text.splitlines()
    assert first == f" What if: compile + cuda-graph, on {OTHER}"
    after = units.duration(entry.step_ns)
    interval = units.duration_range(entry.low_ns, entry.high_ns).removesuffix(" ms")
    saved = f"saves {units.duration(entry.expected_ns)} ({units.percent(entry.expected_ns / 31e6)})"
    assert second == f"   31.0 ms → about {after} ({interval}), {saved}"
    for item in entry.assumes:
        assert f"assumes: {item}" in text
    assert f"then {what_if.bound(entry.regime)}: most of the step is" in text


def test_what_the_machine_saves_is_not_told_under_a_treatments_name() -> None:
    step = ONE.what_ifs[0].step_ns
    entry = replace(found(["compile"], OTHER), step_ns=0.4 * step, expected_ns=0.6 * step, there_ns=0.4 * step)
    text = " ".join(shown(ONE, entry).split())
    assert f"{OTHER} alone saves {units.duration(0.6 * step)} (60 %); compile there saves nothing" in text
    both = replace(entry, there_ns=0.5 * step)
    text = " ".join(shown(ONE, both).split())
    assert (
        f"alone saves {units.duration(0.5 * step)} (50 %); compile there saves {units.duration(0.1 * step)} (20 %)"
        in text
    )
    assert "compile there saves" in what_if.headline(ONE, both)
    assert "alone" not in shown(ONE, found(["compile"]))


def test_the_new_budget_is_listed_from_one_per_cent() -> None:
    entry = found(["cuda-graph"])
    text = shown(ONE, entry)
    for line in entry.lines:
        if line.share >= 0.01 and line.line == "compute":
            assert units.percent(line.share) in text
    shares = [float(one) for one in re.findall(r" +([\d.]+) %  \S", text)]
    assert sum(shares) == pytest.approx(100, abs=1.5)
    assert sum(share < 1 for share in shares) <= 1  # those below share one line


def test_that_it_takes_longer_is_said_plainly() -> None:
    text = shown(ONE, found(["pad-dimensions"]))
    assert re.search(r"takes [\d.]+ \w+ longer \([\d.]+ %\)", text)
    assert "saves" not in text
    assert "takes" in shown(ONE, found([], SLOW))


def test_more_work_is_said() -> None:
    entry = found(["larger-batch"])
    step = units.duration(entry.step_ns)
    assert (
        f"does 4 times the work: for the work of today's step {step}, per step {units.duration(4 * entry.step_ns)}"
        in shown(ONE, entry, Page(width=120))
    )
    assert "times the work" not in shown(ONE, found(["compile"]))


def test_the_step_as_it_is_saves_nothing_and_is_compared_with_nothing() -> None:
    text = shown(ONE, ONE.what_ifs[0])
    assert text.startswith(" What if: the step as it is\n   about 31.0 ms")
    assert "saves" not in text


def test_a_bound_that_stays_is_said_to_stay() -> None:
    entry = found(["compile"])
    assert f"still {what_if.bound(entry.regime)}" in shown(ONE, replace(entry, regime=ONE.what_ifs[0].regime))
    assert "then mixed" in shown(ONE, replace(entry, regime="mixed"))


@pytest.mark.parametrize(
    ("saved", "text"),
    [
        ((1e6, 2e6), "1.00 to 2.00 ms less"),
        ((-2e6, -1e6), "1.00 to 2.00 ms longer"),
        ((-1e6, 2e6), "from 1.00 ms longer to 2.00 ms less"),
        ((0.0, 2e6), "0 to 2.00 ms less"),
        ((1e6, 1e6), "1.00 ms less"),
    ],
)
def test_an_interval_in_words(saved: Interval, text: str) -> None:
    assert what_if.between(saved) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [(1.7e6, "saves 1.70 ms (17 %)"), (-3e5, "takes 300 us longer (3.0 %)"), (10.0, "saves nothing")],
)
def test_a_saving_in_words(ns: float, text: str) -> None:
    now = replace(ONE.what_ifs[0], step_ns=1e7)
    assert what_if.saving(now, replace(now, step_ns=1e7 - ns, expected_ns=ns)) == text


def test_a_step_of_no_time_divides_by_nothing() -> None:
    now = replace(ONE.what_ifs[0], step_ns=0.0, expected_ns=0.0)
    assert what_if.saving(now, now) == "saves nothing"


def test_a_record_without_a_first_entry_is_compared_with_what_the_entry_says() -> None:
    entry = found(["compile"])
    text = shown(replace(ONE, what_ifs=[]), entry)
    assert f"about {units.duration(entry.step_ns)}" in text
    assert what_if.saving(ONE.what_ifs[0], entry) in text


@pytest.mark.parametrize("width", [60, 120])
def test_hostile_texts_are_cleaned_and_ascii_is_ascii(width: int) -> None:
    entry = replace(
        found(["compile"]), treatments=[samples.HOSTILE], machine=samples.HOSTILE, then=samples.HOSTILE,
        assumes=[samples.HOSTILE] * 2, lines=[BudgetLine(line="overhead", cause=samples.HOSTILE, ns=1e6, share=1.0)],
    )  # fmt: skip
    text = shown(ONE, entry, Page(width=width, glyphs=ASCII))
    assert text.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert max(map(cell_len, text.splitlines())) <= width
