from __future__ import annotations

import io
import re
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from gobrrr.model.diagnosis import BudgetLine, Coverage, Diagnosis, OpRow, Prescription, Wall
from gobrrr.report import advice, budget, terminal, words
from gobrrr.report.layout import ASCII, Page, plain
from tests.report import samples

EVERY = pytest.mark.parametrize("name", list(samples.ALL))
REGIMES = {
    "overhead": "OVERHEAD-BOUND",
    "memory": "MEMORY-BOUND",
    "compute": "COMPUTE-BOUND",
    "communication": "COMMUNICATION-BOUND",
    "waiting_for_input": "INPUT-BOUND",
    "mixed": "MIXED",
    "unknown": "UNKNOWN",
    "nothing": "UNKNOWN",
}


@EVERY
@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_answer_fits_the_screen(name: str, width: int) -> None:
    lines = terminal.render(samples.ALL[name](), width=width).splitlines()
    if name == "hostile":  # names of thousands of letters, and code to paste of as many
        assert len(lines) <= 3 * terminal.SCREEN_LINES
        return
    assert max(map(cell_len, lines)) <= width
    assert width < 80 or len(lines) <= terminal.SCREEN_LINES


@EVERY
def test_plain_text_has_no_escape_codes_and_no_hidden_characters(name: str) -> None:
    text = terminal.render(samples.ALL[name]())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


@EVERY
def test_ascii_is_ascii(name: str) -> None:
    assert terminal.render(samples.ALL[name](), unicode=False).isascii()


@EVERY
def test_colour_changes_no_text(name: str) -> None:
    diagnosis = samples.ALL[name]()
    coloured = terminal.render(diagnosis, color=True)
    bare = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines())
    assert "\x1b[" in coloured
    assert bare == terminal.render(diagnosis)


@pytest.mark.parametrize(("name", "headline"), REGIMES.items())
def test_the_verdict_is_named(name: str, headline: str) -> None:
    assert re.search(rf"^ {headline} .*certainty: (high|medium|low)$", terminal.render(samples.ALL[name]()), re.M)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("overhead", "the device idles 61 % of the step, waiting for launches"),
        ("memory", "moving bytes takes 98 % of the step: 88 % at the roof, 10 % below it"),
        ("compute", "arithmetic takes 80 % of the step: 60 % at the roof, 19 % below it"),
        ("communication", "exposed communication takes 55 % of the step"),
        ("waiting_for_input", "the device waits for input data 66 % of the step"),
        ("mixed", "memory 42 %, overhead 35 %: none takes half of the step"),
        ("unknown", "the least time for the work is not known: the device is not known (name it: --on)"),
        ("nothing", "the recording does not show where the step's time goes"),
    ],
)
def test_one_sentence_with_a_number_says_why(name: str, sentence: str) -> None:
    assert words.reason(samples.ALL[name]()) == sentence


@pytest.mark.parametrize(
    ("cause", "label"),
    [
        ("launching", "launching"),
        ("python", "Python between ops"),
        ("sync_drain", "synchronisation"),
        ("input", "input data"),
        ("allocator", "allocator"),
        ("gc", "garbage collection"),
        ("compile", "compiling"),
        ("host_compute", "host computation"),
        ("unexplained", "unexplained"),
        (None, "unexplained"),
        ("something new", "something new"),
    ],
)
def test_causes_have_plain_words(cause: str | None, label: str) -> None:
    assert words.label(BudgetLine(line="overhead", cause=cause, ns=1, share=1)) == label


def test_transfer_has_its_sentence() -> None:
    lines = samples.budget(10, transfer=6, compute=4)
    assert "copies with nothing else running take 60 %" in words.reason(
        samples.diagnosis(regime="transfer", budget=lines)
    )


@EVERY
def test_the_rows_hold_all_the_time_there_is(name: str) -> None:
    lines = samples.ALL[name]().budget
    shown = budget.rows(lines)
    assert sum(row.ns for row in shown) == pytest.approx(sum(line.ns for line in lines))
    assert sum(row.share for row in shown) == pytest.approx(sum(line.share for line in lines))


def test_the_printed_rows_add_up_to_the_step() -> None:
    text = terminal.render(samples.overhead())
    printed = [float(one) for one in re.findall(r"([\d.]+) ms +[\d.]+ %", text)]
    assert sum(printed) == pytest.approx(31.0, abs=0.05 * len(printed))


def test_more_lines_than_a_screen_holds_are_merged_not_hidden() -> None:
    lines = [BudgetLine(line="overhead", cause=f"cause {n}", ns=1e6, share=1 / 40) for n in range(40)]
    shown = budget.rows(lines)
    assert len(shown) == budget.MOST_BUDGET_ROWS + 1
    assert sum(row.ns for row in shown) == 40e6
    assert shown[-1].kind == "other"


def test_one_tiny_line_keeps_its_name() -> None:
    shown = budget.rows(samples.budget(100, compute=99.9, overhead__allocator=0.1))
    assert [row.label for row in shown] == ["at its roof", "allocator"]


@pytest.mark.parametrize(
    ("times_ns", "shown"),
    [
        ([31e6, 0.06e6], ["31.0 ms", "0.1 ms"]),
        ([6.1e6, 0.08e6], ["6.10 ms", "0.08 ms"]),
        ([450e3, 1e3], ["450.0 us", "1.0 us"]),
        ([12e9, 1e6], ["12.0 s", "0.0 s"]),
        ([12.0], ["12.0 ns"]),
        ([], []),
    ],
)
def test_a_column_has_one_unit(times_ns: list[float], shown: list[str]) -> None:
    assert [one.strip() for one in budget.aligned(times_ns)] == shown


@pytest.mark.parametrize(
    ("wall", "without"),
    [
        (samples.wall(31, 27.9, 34.1), ", 31.0 ms without it (estimated, 27.9 to 34.1)"),
        (samples.wall(31, 30.9, 31.2, "measured"), ", 31.0 ms without it (measured, 30.9 to 31.2)"),
        (Wall(value=None, low=None, high=None, how="unknown"), "; unknown without it"),
    ],
)
def test_the_step_time_says_how_it_is_known(wall: Wall, without: str) -> None:
    assert terminal.wall(samples.diagnosis(unprofiled_wall_ns=wall)) == f"49.2 ms a step under the profiler{without}"


def test_unknown_is_never_zero() -> None:
    text = terminal.render(samples.nothing())
    assert "the step's time is unknown" in text
    assert not re.search(r"\b0\b", text)


NO_LIGHT: dict[str, Any] = {"speed_of_light_ns": None, "coverage": Coverage(device_time=0.05, calls=0.5, bytes=None)}


def unpriced(**changes: Any) -> Diagnosis:
    """A step of which 95 % has no floor, most of it in one row of the table."""
    row = OpRow(op="aten::mm", shapes="[8, 8] float16", family="matmul", calls=1, ns=29e6, floor_ns=None, bound=None,
                flop=None, bytes=None, roof=None, kernel="gemm")  # fmt: skip
    lines = samples.budget(31.0, unpriced=29.0, memory=2.0)
    return samples.diagnosis(regime="unknown", budget=lines, ops=[replace(row, **changes)], **NO_LIGHT)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"flop": 1e9, "bytes": 1e6}, "has an element type for which H100-SXM has no known peak"),
        (
            {"note": "replayed from a graph: the trace holds no arguments"},
            "is replayed from a graph, without operations",
        ),
        ({"note": "no operation in the trace owns it"}, "belongs to no recorded operation"),
        ({"shapes": ""}, "has no recorded shapes"),
        ({"note": "no rule for own::op"}, "has no counting rule"),
        ({}, "can't be counted from what is recorded"),
    ],
)
def test_unknown_names_what_is_missing(row: dict[str, Any], why: str) -> None:
    only = "the least time for the work is known for only 5.0 % of the device's compute time"
    assert words.reason(unpriced(**row)) == f"{only}; most of the rest {why}"


def test_a_host_s_budget_is_not_a_device_s() -> None:
    lines = samples.budget(10, unpriced=1.6, overhead__python=8.4)
    said = words.reason(samples.diagnosis(regime="overhead", budget=lines, devices=[]))
    assert said == "the host runs no operation in 84 % of the step, most of it Python between ops"
    lines = samples.budget(10, unpriced=1.6, overhead__input=8.4)
    assert words.reason(samples.diagnosis(regime="input", budget=lines, devices=[])).startswith("the host waits")
    assert "no device work" in words.reason(samples.diagnosis(regime="unknown", budget=lines, devices=[]))


def test_a_missing_speed_of_light_says_why() -> None:
    assert "unknown, because not all work has a known least time" in terminal.light(samples.mixed())
    assert "unknown, because the device is not known" in terminal.light(samples.unknown())
    assert "no ceilings are known for Foo" in terminal.light(samples.diagnosis(**NO_LIGHT, machine=None, device="Foo"))
    assert "too little has a known least time. The least time is known for 5.0 %" in terminal.light(
        samples.diagnosis(**NO_LIGHT)
    )
    assert "no device work is in the trace" in terminal.light(samples.diagnosis(**NO_LIGHT, devices=[]))


def test_a_step_faster_than_light_is_called_out() -> None:
    assert "104 % of what the step takes (a count or a ceiling is wrong)" in terminal.light(
        samples.diagnosis(speed_of_light_ns=32.24e6)
    )


def test_no_finding_is_said_and_what_was_not_checked_too() -> None:
    text = terminal.render(samples.communication())
    assert "no condition that gobrrr knows explains that" in text.replace("\n ", " ")
    assert "4 conditions could not be checked" in text.replace("\n ", " ")


def test_findings_without_a_treatment_are_shown() -> None:
    text = terminal.render(samples.diagnosis(prescriptions=[]))
    assert "Found, but no remedy is predicted to save time" in text
    assert all(code in text for code in ("O01", "M01", "O04", "M07"))


def test_what_brings_no_gain_is_nothing_to_do() -> None:
    treatment = Prescription(treatment="compile", finding="M01", predicted_saving_ns=(0, 0), how="compile it")
    text = terminal.render(samples.diagnosis(prescriptions=[treatment]))
    assert "What to do" not in text
    assert "Found, but no remedy is predicted to save time" in text


def test_a_prescription_without_its_finding_is_shown() -> None:
    text = terminal.render(samples.diagnosis(findings=[]))
    assert "O01" in text
    assert "torch.compile(step" in text


def test_a_second_remedy_points_to_the_first() -> None:
    text = " ".join(terminal.render(samples.compute()).split())
    assert "2 tf32: torch.set_float32_matmul_precision" in text
    assert text.count("mends fp32 matmuls off the tensor cores") == 2
    assert "(C01; where: see 1)" in text


def test_the_code_to_paste_is_whole() -> None:
    lines = plain(advice.prescriptions(samples.overhead(), Page(), most=1)).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("  1  cuda_graph "))
    assert [line.strip() for line in lines[at + 1 : at + 4]] == [
        "import torch", "", 'step = torch.compile(step, mode="reduce-overhead")',
    ]  # fmt: skip


def test_every_device_of_two_to_four_has_a_line_and_more_are_counted() -> None:
    text = terminal.render(samples.communication())
    assert text.count("of the trace, 900 kernels") == 4
    assert "and 4 more devices" in text


def test_bars_grow_with_shares_and_never_vanish() -> None:
    assert Page().bar(1, 10) == "█" * 10
    assert Page().bar(0.5, 5) == "██▌"
    assert Page().bar(1e-9, 10) == "▏"
    assert Page().bar(0, 10) == ""
    assert Page(glyphs=ASCII).bar(0.5, 10) == "#####"
    assert Page(glyphs=ASCII).bar(1e-9, 10) == "#"


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/a/b/trace.json.gz", "trace.json.gz"),
        ("runs/ddp/", "ddp"),
        ("https://host/x/trace.json?token=secret", "trace.json"),
        ("-", "standard input"),
        ("\x1b[2J", ""),
        ("/", "/"),
    ],
)
def test_a_target_is_called_by_its_last_part(target: str, shown: str) -> None:
    assert terminal.basename(target) == shown


def console(diagnosis: Diagnosis, **options: object) -> str:
    stream = io.StringIO()
    terminal.print_to(diagnosis, Console(file=stream, **options))  # type: ignore[arg-type]
    return stream.getvalue()


def test_a_pipe_gets_plain_text() -> None:
    assert console(samples.overhead(), width=100) == terminal.render(samples.overhead()) + "\n"


def test_a_terminal_gets_its_width_and_colours() -> None:
    text = console(samples.overhead(), force_terminal=True, width=100, color_system="standard")
    assert "\x1b[" in text
    assert max(cell_len(line) for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()) == 100


def test_markup_in_a_name_is_not_obeyed() -> None:
    assert "[red]x[/red]" in console(samples.hostile(), force_terminal=True, width=120)
