"""How a prediction prints: a screen of 80 columns, the machines in a table, words for what changes."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from gobrrr.model.diagnosis import ChangedOp, Diagnosis, MachineRow
from gobrrr.report import prediction, terminal, words
from gobrrr.report.layout import ASCII, Page, plain
from tests.report import samples
from tests.test_prediction import SEVERAL, STEPS, here, network

EVERY = pytest.mark.parametrize("name", list(STEPS))


@EVERY
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_it_fits_the_screen(name: str, width: int, unicode: bool):
    lines = terminal.render(here(STEPS[name], *SEVERAL), width=width, unicode=unicode).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert width < 80 or len(lines) <= terminal.SCREEN_LINES
    assert unicode or "\n".join(lines).isascii()


@EVERY
def test_every_machine_has_a_line(name: str):
    found = here(STEPS[name], *SEVERAL)
    text = terminal.render(found)
    for row in found.machines:
        assert len(re.findall(rf"^ {re.escape(row.machine)} .*\d (ns|us|ms|s) ", text, re.M)) == 1


def test_what_is_no_prediction_has_no_table():
    assert prediction.section(samples.overhead(), Page()) == []
    assert "Predicted " not in terminal.render(samples.overhead())


def test_the_head_says_that_nothing_was_run():
    text = terminal.render(here(STEPS["large"]))
    assert "a step, predicted" in text.splitlines()[1]
    assert "nothing was run" in text
    assert "profiler" not in text.splitlines()[1]


@pytest.mark.parametrize(("name", "word"), [("small", "OVERHEAD-BOUND"), ("large", "COMPUTE-BOUND")])
def test_the_verdict(name: str, word: str):
    found = here(STEPS[name])
    assert re.search(rf"^ {word} ", terminal.render(found), re.M)
    assert words.headline(found).startswith(word)


def row(**more: object) -> MachineRow:
    return replace(here(STEPS["large"]).machines[0], **more)


def lines_of(found: Diagnosis, page: Page | None = None) -> list[str]:
    return plain(prediction.section(found, page or Page())).splitlines()


def with_rows(*rows: MachineRow) -> Diagnosis:
    return replace(here(STEPS["large"]), machines=list(rows))


def test_a_row_holds_time_interval_device_bound_memory_and_light():
    one = row(
        machine="X1", step_ns=2e6, low_ns=1e6, high_ns=4e6, device_ns=1.5e6, regime="memory", fits=True,
        speed_of_light_ns=1e6,
    )  # fmt: skip
    assert re.split(r"  +", lines_of(with_rows(one))[1].strip()) == [
        "X1", "2.00 ms (1.00 to 4.00 ms)", "1.50 ms", "memory", "fits", "50 %",
    ]  # fmt: skip


@pytest.mark.parametrize("fits", [True, False, None])
def test_memory_in_a_word(fits: bool | None):
    line = lines_of(with_rows(row(fits=fits)))[1]
    assert ("too big" in line, " fits" in line, "  ?  " in line) == (fits is False, fits is True, fits is None)
    assert cell_len(line) <= 80


def test_a_narrow_page_has_no_room_for_the_interval():
    one = row(machine="H100-SXM5-80GB", step_ns=2e6, low_ns=1e6, high_ns=4e6)
    narrow, usual = (" ".join(lines_of(with_rows(one), Page(width=width))[1:3]) for width in (60, 80))
    assert "2.00 ms" in narrow
    assert "2.00 ms (1.00 to 4.00 ms)" in usual
    assert "1.00 to" not in narrow


def test_light_that_is_not_known_is_not_zero():
    assert "0 %" not in lines_of(with_rows(row(speed_of_light_ns=None, step_ns=2e6)))[1].split()[-1]


def test_machines_on_which_nothing_changes_share_a_sentence():
    first, *others = (
        row(machine=name, step_ns=ns, changed=[], regime="memory") for name, ns in (("A", 3e6), ("B", 2e6), ("C", 1e6))
    )
    same = "times as fast as A: B 1.50, C 3.00; the long operations have the same bottleneck there"
    assert prediction.alike(others, first) == [same]
    assert prediction.alike([], first) == []


def test_a_step_that_the_host_bounds_is_not_said_to_meet_a_roof():
    first = row(machine="A", step_ns=3e6, regime="memory")
    others = [row(machine="B", step_ns=2e6, regime="overhead"), row(machine="C", step_ns=1e6, regime="compute")]
    said = prediction.alike(others, first)
    assert said[0] == "times as fast as A: B 1.50; the host bounds the step there, not a roof"
    assert said[1].endswith("C 3.00; the long operations have the same bottleneck there")


def test_a_longer_name_has_its_own_line():
    long = row(machine="A-Very-Long-Name-Of-A-Machine-96GB")
    for page in (Page(), Page(glyphs=ASCII)):
        lines = lines_of(with_rows(long), page)
        assert max(map(cell_len, lines)) <= 80
        assert lines[1] == f" {long.machine}"


def test_the_gap_names_each_machine_s_ridge():
    first, second = row(machine="A", ridge_flop_per_byte=153.0), row(machine="B", ridge_flop_per_byte=295.4)
    text = prediction.gap([replace(first, step_flop_per_byte=200.4), second])
    assert "200 FLOP a byte on average" in text
    assert text.endswith("bound by memory below 153 on A, 295 on B, else by compute.")
    assert prediction.gap([replace(first, step_flop_per_byte=None)]).endswith("is not known.")


def test_what_changes_between_machines():
    first, second = row(machine="A", step_ns=3e6), row(machine="B", step_ns=2e6)
    changed = [ChangedOp(op=f"aten::op{at}", shapes="[8]", bound="memory", ns=1.0) for at in range(5)]
    there = replace(second, changed=changed)
    assert prediction.changes([there, replace(there, machine="C", step_ns=1e6)], first) == (
        "times as fast as A: B 1.50, C 3.00; other bottleneck there: op0 [8] memory; op1 [8] memory; op2 [8] memory "
        "and 2 more"
    )


def test_the_host_s_part_is_said():
    assert "Issuing the step takes the host 5.00 ms" in prediction.host(row(host_ns=5e6, host="some host"))
    assert "some host" in prediction.host(row(host="some host"))


def test_the_example_is_python_of_at_most_120_columns():
    compile(prediction.PREDICT_EXAMPLE, "workload.py", "exec")
    assert max(map(len, prediction.PREDICT_EXAMPLE.splitlines())) <= 120


def test_five_machines_and_a_busy_step_still_leave_room_for_advice():
    assert "What to do" in terminal.render(here(network(16), *SEVERAL))
