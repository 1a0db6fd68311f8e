"""A measured machine and the lab on the screen: every figure, flags, what was skipped, and the page's width."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from gobrrr.lab import article
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, Flame, Frame, Judgement, LabReport, LabTable, Plot, Series
from gobrrr.report import lab, machine
from gobrrr.report.layout import ASCII, Page, plain
from gobrrr.report.values import spread, text
from tests.hardware.measured_samples import entry, environment, h100, quantity

HOSTILE = "<script>alert('x')</script>\x1b[2J"


def screen(width: int = 80) -> str:
    return plain(machine.pages([h100()], Page(width=width)))


def test_each_figure_beside_the_datasheets() -> None:
    out = screen()
    assert max(map(len, out.splitlines())) <= 80
    row = next(line for line in out.splitlines() if "bfloat16, n = 8192" in line)
    assert row.split() == ["bfloat16,", "n", "=", "8192", "729", "TFLOP/s", "1.0", "%", "989", "TFLOP/s", "0.74"]
    assert "derived" in next(line for line in out.splitlines() if "float32 multiply" in line)
    assert "not measured: all-reduce: there is one GPU" in out
    assert "Roofline of NVIDIA H100 80GB HBM3: DRAM at 3.06 TB/s" in out


def test_above_the_datasheet_is_flagged() -> None:
    out = screen()
    assert next(line for line in out.splitlines() if line.startswith("   write")).endswith("above")
    assert "Above the datasheet: memory write (1.01 of it)" in out


def test_a_wide_spread_is_called_out() -> None:
    noisy = h100(entries=(entry("memory", "copy", 1e12, "B/s", spread=0.5),))
    assert "Wide spread, so less certain: memory copy (50 %)." in plain(machine.pages([noisy], Page()))


def test_the_json_has_ratios() -> None:
    found = machine.for_json(h100())
    assert found["measured"]["format"] == 1
    ratios = {one["name"]: (one["ratio"], one["above"]) for one in found["compared"]}
    assert ratios["add"] == (None, False)
    assert ratios["write"][1]


def test_a_roofline_without_bandwidth_is_none() -> None:
    assert machine.roofline(machine.machine_of(h100(entries=(), environment=environment("x")))) is None


def sample(**changes: object) -> Experiment:
    judgement = Judgement(claim=article.TWICE, verdict="holds", here=f"1.98 {HOSTILE}", rule="1.7 to 2.3")
    rows = (("cos", quantity(1e-3, 0.3), None), ("cos.cos", quantity(2e-3), 4.0))
    fields: dict[str, object] = {
        "name": "fusion",
        "title": f"Title {HOSTILE}",
        "tables": (LabTable(title="T", columns=columns("what", "time [s]", "ratio [x]"), rows=rows),),
        "plots": (Plot(title="P", x="x", y="y", y_unit="s", series=(Series(name="s", points=((1, 1), (2, 2))),)),),
        "flames": (Flame(title="F", frames=(Frame(name=HOSTILE, depth=0, start_s=0, duration_s=1e-6),)),),
        "judgements": (judgement,),
        "notes": (HOSTILE,),
        **changes,
    }
    return Experiment(**fields)  # type: ignore[arg-type]


def report(*experiments: Experiment) -> LabReport:
    return LabReport(environment=environment(), experiments=experiments)


@pytest.mark.parametrize("page", [Page(), Page(width=60), Page(glyphs=ASCII)], ids=["80", "60", "ascii"])
def test_the_lab_fits_the_page(page: Page) -> None:
    skipped = sample(status="skipped", why=f"no compiler {HOSTILE}")
    out = plain(lab.lines(report(sample(), skipped), page))
    assert max(map(len, out.splitlines())) <= page.width
    assert "\x1b" not in out
    assert "HOLDS: 1.98" in out
    assert "skipped: no compiler" in out
    assert '2a  "we only need 2 global memory' in out


def test_a_table_shows_what_is_not_known_and_wide_spreads() -> None:
    out = plain(lab.table(sample().tables[0], Page())).splitlines()
    assert out[2].split() == ["cos", "1.00", "ms", "~30", "%", "?"]
    assert out[3].split() == ["cos.cos", "2.00", "ms", "4.00"]


class Tags(HTMLParser):
    """Collects the names of tags and what they load."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.loads += [value or "" for name, value in attrs if name == "src"]


def test_the_page_is_text_only() -> None:
    tags = Tags()
    tags.feed(lab.page_of(report(sample(), sample(status="skipped", why=HOSTILE))))
    assert {"table", "svg", "blockquote"} <= tags.seen
    assert "script" not in tags.seen
    assert tags.loads == []


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "s", "?"),
        (float("nan"), "s", "?"),
        (5.8e-11, "s", "0.058 ns"),
        (7.5e-7, "s", "750 ns"),
        (1.5e-3, "s", "1.50 ms"),
        (0.0, "s", "0"),
        (3e12, "B/s", "3.00 TB/s"),
        (1.1e8, "1/s", "110 M/s"),
        (0.5, "share", "50 %"),
        (1.984, "x", "1.98"),
        (250.4, "x", "250"),
        (64.0, "", "64"),
        (15.1234, "FLOP/B", "15.1"),
    ],
)
def test_values(value: float | None, unit: str, shown: str) -> None:
    assert text(value, unit) == shown


def test_spreads() -> None:
    assert spread(quantity(1.0, 0.2)) == "20 %"
    assert spread("x") == ""
