"""What calc prints: within the page, in ASCII where that is all there is, and the same through the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

import gobrrr
from gobrrr import cli, envelope
from gobrrr.report import calc
from gobrrr.report.calc_sketch import ROWS, sketch
from gobrrr.report.layout import ASCII, Line, Page, plain

PROBLEMS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("x.cos().cos()",), {"shape": 2**26, "on": "a100-40gb"}),
    (("mm", 4096, 4096, 4096), {"dtype": "bf16", "on": "h100"}),
    (("attention", 8, 16, 4096, 64), {"dtype": "bf16", "causal": True, "on": "h100"}),
    (("(x @ w1).silu() * (x @ w3)",), {"shape": {"x": (64, 8), "w1": (8, 9), "w3": (8, 9)}, "on": "mi300x"}),
    (("(x - x.mean(-1, True)) * (x.var(-1, keepdim=True) + 1e-5).rsqrt()",), {"shape": (8, 9), "on": "h100"}),
    (("pointwise",), {"ops": 4096, "shape": 2**26, "on": "article"}),
    (("copy", 10**9), {"host": True, "on": "h100"}),
    (("allreduce", 10**9), {"ranks": 8, "on": "gh200-144gb"}),
    (("adam", 10**9), {"on": "b200"}),
    (("mm", 3, 3, 3), {"dtype": "bf16", "on": "v100"}),
    (("x" + "+x.cos()" * 40,), {"shape": 5, "on": "h100"}),
    (("+".join(f"tensor_number_{n}" for n in range(30)),), {"shape": (2,) * 20, "on": "h100"}),
]


def fits(lines: list[Line], width: int) -> None:
    for line in plain(lines).splitlines():
        assert cell_len(line) <= width, line


@pytest.mark.parametrize("width", [60, 71, 72, 80, 120])
@pytest.mark.parametrize(("arguments", "options"), PROBLEMS)
def test_fits_the_page(arguments: tuple[Any, ...], options: dict[str, Any], width: int) -> None:
    one = gobrrr.calc(*arguments, **options)
    fits(calc.envelope(one, Page(width=width)), width)
    ascii_page = Page(width=width, glyphs=ASCII)
    assert plain(calc.envelope(one, ascii_page)).isascii()
    fits(calc.envelope(one, ascii_page), width)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_page(width: int) -> None:
    page = Page(width=width)
    fits(calc.article(envelope.article(), page), width)
    fits(calc.generations(envelope.generations(), page), width)
    machines = ("v100", "a100-40gb", "gh200-144gb", "mi300x", "mi250x")
    many = [gobrrr.calc("mm", 256, 4096, 4096, dtype="bf16", on=name) for name in machines]
    fits(calc.across(many, page), width)
    fits(calc.across([gobrrr.calc("allreduce", 9, ranks=2, on=name) for name in machines], page), width)


def test_print_shows_the_page() -> None:
    text = str(gobrrr.calc("x.cos().cos()", shape=2**26, on="a100-40gb"))
    assert "MEMORY-BOUND" in text
    assert re.search(r"op by op, 2 kernels +134 MFLOP +1.07 GB +0.125 +691 us  memory", text)
    assert re.search(r"fused, 1 kernel +134 MFLOP +537 MB +0.250 +345 us  memory", text)
    assert "Fusion saves 345 us of 691 us (2 times as fast at best)" in text
    assert "compute is the bound from 100 on" in " ".join(text.split())


def test_the_sketch_marks_points_on_and_under_the_roof() -> None:
    one = gobrrr.calc("x.cos().cos()", shape=2**26, on="article")
    lines = plain(sketch(one, Page())).splitlines()
    area = [line.partition("|")[2] for line in lines[:ROWS]]
    marks = {mark: [(r, line.index(mark)) for r, line in enumerate(area) if mark in line] for mark in "o*+"}
    assert [len(found) for found in marks.values()] == [1, 1, 1]
    assert marks["o"][0][0] > marks["*"][0][0] > marks["+"][0][0] == 0  # 0.125, 0.25 and 13 FLOP a byte, upwards
    assert marks["o"][0][1] < marks["*"][0][1] < marks["+"][0][1]
    assert "19.5 TFLOP/s" in lines[0]
    assert "0.125" in lines[-2]
    assert "13" in lines[-2]


def test_no_sketch_without_arithmetic() -> None:
    assert sketch(gobrrr.calc("copy", 1000, on="h100"), Page()) == []
    assert sketch(gobrrr.calc("mm", 3, 3, 3, dtype="bf16", on="v100"), Page()) == []


def test_what_is_not_known_is_a_question_mark() -> None:
    text = plain(calc.envelope(gobrrr.calc("mm", 3, 3, 3, dtype="bf16", on="v100"), Page()))
    assert "UNKNOWN" in text
    assert re.search(r"  mm +54 FLOP +54 B +1 +\?  \?", text)


def test_the_bound_that_changes_is_said() -> None:
    names = ("a100-40gb", "h100", "v100")
    many = [gobrrr.calc("linear", 256, 4096, 4096, dtype="bf16", on=name) for name in names]
    text = " ".join(plain(calc.across(many, Page())).split())
    assert "The bound changes: compute-bound on A100-40GB-SXM4; memory-bound on H100-SXM5-80GB." in text
    assert "No such peak is in the table for V100-SXM2-32GB." in text


def test_a_hostile_name_can_not_reach_the_terminal() -> None:
    text = str(gobrrr.calc("\N{LATIN SMALL LETTER E WITH ACUTE} + 1", shape=3, on="h100"))
    assert "\x1b" not in text


def test_json_round_trip() -> None:
    for arguments, options in PROBLEMS:
        one = gobrrr.calc(*arguments, **options)
        assert msgspec.json.decode(msgspec.json.encode(one), type=gobrrr.Envelope) == one


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(["calc", *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


def test_command_line(run: Any) -> None:
    status, out, err = run("x.cos().cos()", "--shape", "67108864", "--on", "a100-40gb")
    assert (status, err) == (0, "")
    assert out == str(gobrrr.calc("x.cos().cos()", shape=2**26, on="a100-40gb")) + "\n"
    status, out, _ = run("attention", "2", "16", "512", "64", "--dtype", "bf16", "--causal", "--on", "h100", "--json")
    assert status == 0
    expected = gobrrr.calc("attention", 2, 16, 512, 64, dtype="bf16", causal=True, on="h100")
    assert msgspec.json.decode(out, type=gobrrr.Envelope) == expected


def test_command_line_for_several_machines(run: Any) -> None:
    sizes = ("mm", "4096", "4096", "4096", "--dtype", "bf16")
    _, out, _ = run(*sizes, "--on", "a100-40gb,h100, mi300x")
    assert "Compute-bound on all of them." in out
    _, out, _ = run(*sizes, "--on", "a100-40gb,h100", "--json")
    assert [one["machine"] for one in json.loads(out)] == ["A100-40GB-SXM4", "H100-SXM5-80GB"]


def test_command_line_tables(run: Any) -> None:
    assert "of 21 computed figures agree with the article" in run("article")[1]
    _, out, _ = run("article", "--json")
    assert len(json.loads(out)["claims"]) == len(envelope.claims())
    assert "295" in run("generations")[1]
    assert max(map(cell_len, run("generations", "--width", "60")[1].splitlines())) <= 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'WHAT'; see: gobrrr calc --help"),
        (("x.cos()", "--shape", "3"), "say which machine: --on a100-40gb"),
        (("x.cos()", "--shape", "3", "--on", ""), "say which machine: --on a100-40gb"),
        (("x.cos()", "--shape", "3", "--on", "h100,"), "say which machine"),
        (("x.cos()", "--shape", "3", "--on", "abacus"), "unknown device 'abacus'"),
        (("x.cso()", "--shape", "3", "--on", "h100"), "did you mean cos"),
        (("x.cos()", "--on", "h100"), "no shape for x"),
        (("x.cos()", "--shape", "three", "--on", "h100"), "is not a shape"),
        (("mm", "1", "2", "three", "--on", "h100"), "'three' is not a size"),
        (("__import__('os').system('true')", "--shape", "1", "--on", "h100"), "unknown function '__import__'"),
    ],
)
def test_a_users_mistake_is_one_line(run: Any, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"gobrrr: [^\n]+\n", err)
    assert message in err


def test_help_fits(run: Any) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    for word in ("attention", "pointwise", "article", "generations"):
        assert word in out


def test_the_documentation_is_what_the_commands_print(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.make_calc", "--check"], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_word_is_in_the_documentation(root: Path) -> None:
    from gobrrr.envelope.problems import WORDS

    text = (root / "docs" / "calc.md").read_text(encoding="utf-8")
    for word in WORDS:
        assert f"`{word}`" in text
