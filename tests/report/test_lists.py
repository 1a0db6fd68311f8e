from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from gobrrr.model.machine import Ceiling, Machine
from gobrrr.report import demo, listing
from gobrrr.report.layout import Page, plain
from gobrrr.report.progress import ReadProgress
from tests.report import samples

MACHINE = Machine(
    name="X100",
    vendor="NVIDIA",
    matrix_flop_per_s={"bfloat16": Ceiling(value=989e12, provenance="datasheet", source="the datasheet, page 1")},
    memory_bytes_per_s=Ceiling(value=3.35e12, provenance="measured"),
    notes=("two clocks are quoted",),
)


def test_a_machine_shows_what_is_known_and_what_is_not() -> None:
    text = plain(listing.machine(MACHINE, Page()))
    assert "matrix units, bfloat16         989 TFLOP/s   datasheet" in text
    assert "memory bandwidth                 3.35 TB/s   measured" in text
    assert "cache bandwidth                    unknown" in text
    assert "source: the datasheet, page 1" in text
    assert "two clocks are quoted" in text


def test_codes_are_grouped_by_letter() -> None:
    conditions = {"M01": "unfused", "O02": "second", "O01": "launch-bound", "Z09": "of a new letter"}
    text = plain(listing.codes(conditions, {"compile": "torch.compile"}, Page()))
    order = [text.index(part) for part in ("Overhead", "O01", "O02", "Memory", "M01", "Z09", "Treatments", "compile")]
    assert order == sorted(order)
    assert "Compute" not in text


def row(name: str, regime: str = "overhead", measured: tuple[float, float] | None = (30.1, 35.0)) -> demo.DemoRow:
    truth = demo.Truth(regime=regime, what="launch-bound; CUDA graph", measured_ms=measured)
    return demo.DemoRow(name, samples.overhead(), truth)


def test_the_demo_sets_the_answer_beside_the_truth() -> None:
    missed, unknown = row("b", "memory", (90, 91)), demo.DemoRow("c", samples.nothing(), row("c").truth)
    lines = plain(demo.table([row("mlp_tiny.faulty"), missed, unknown], Page())).splitlines()
    assert max(map(cell_len, lines)) <= 80
    columns = re.split(r" {2,}", lines[2].strip())
    assert columns == ["mlp_tiny.faulty", "overhead", "31.0 ms (27.9 to 34.1)", "30.1 to 35.0 ms"]
    assert lines[3].strip() == "launch-bound; CUDA graph"
    assert lines[5].strip() == "launch-bound; CUDA graph (built to be memory-bound)"
    assert lines[6].split()[:3] == ["c", "unknown", "?"]
    assert lines[-1].strip() == "The predicted interval contains a measured time for 1 of 2 traces."


def test_every_shipped_trace_has_its_truth(h100: Path) -> None:
    known = demo.truths(h100, ".json.gz")
    assert known["mlp_tiny.faulty"].regime == "overhead"
    assert known["mlp_tiny.fixed"].what == "fixed: launch-bound; CUDA graph"
    assert all(truth.measured_ms for truth in known.values())


def test_a_folder_without_traces_has_no_truths(tmp_path: Path) -> None:
    assert demo.truths(tmp_path, ".json.gz") == {}


@pytest.mark.parametrize(
    ("elapsed_s", "terminal", "shown"), [(0.5, True, False), (1.5, True, True), (1.5, False, False)]
)
def test_progress_is_shown_only_when_one_waits(elapsed_s: float, terminal: bool, shown: bool) -> None:
    stream = io.StringIO()
    now = iter([0.0, 0.0, elapsed_s, elapsed_s + 1])
    console = Console(file=stream, force_terminal=terminal, width=80)
    with ReadProgress("reading [red]x[/red]", console, clock=lambda: next(now)) as progress:
        progress(1_000_000, 4_000_000)
        if elapsed_s > 1:
            progress(2_000_000, None)
    assert ("reading [red]x[/red]" in stream.getvalue()) == shown
    assert terminal or not stream.getvalue()
