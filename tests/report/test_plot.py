"""Plots in characters and as SVG: points where they belong, nothing wider than the page, nothing unescaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.model.experiment import Plot, Series
from gobrrr.report.plot import SIGNS, Area, sketch
from gobrrr.report.svg import decades, draw, powers_of_two

POINTS = st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e15)), min_size=1, max_size=20)


def plot(*points: tuple[float, float], name: str = "s", marks: tuple[tuple[str, float], ...] = ()) -> Plot:
    return Plot(title="T", x="x", y="y", y_unit="B/s", series=(Series(name=name, points=points),), marks=marks)


def field(lines: list[str]) -> list[str]:
    return [line.split("|", 1)[1] for line in lines if "|" in line]


def test_a_power_law_is_a_straight_line() -> None:
    rows = field(sketch(plot(*((2.0**at, 4.0**at) for at in range(8))), 50, 8))
    columns = [row.index("*") for row in rows]
    assert columns == sorted(columns, reverse=True)
    steps = {a - b for a, b in pairwise(columns)}
    assert max(steps) - min(steps) <= 1


@given(POINTS, st.integers(40, 120), st.integers(3, 20))
def test_any_points_fit_the_page(points: list[tuple[float, float]], width: int, height: int) -> None:
    lines = sketch(plot(*points), width, height)
    assert max(map(len, lines)) <= width
    assert any("*" in row for row in field(lines))


@pytest.mark.parametrize("points", [(), ((0.0, 1.0),), ((1.0, 0.0),), ((1.0, float("nan")),), ((float("inf"), 1.0),)])
def test_no_points(points: tuple[tuple[float, float], ...]) -> None:
    assert sketch(plot(*points), 80)[1:] == ["  (no points)"]
    assert "no points" in draw(plot(*points))


def test_one_point_and_a_mark() -> None:
    lines = sketch(plot((4.0, 2.0), marks=(("knee", 4.0), ("outside", 1e9))), 60, 5)
    assert sum("*" in row for row in field(lines)) == 1
    assert lines[-1] == "   * s  : knee  : outside"


def test_several_series_have_signs_of_their_own() -> None:
    two = Plot(
        title="T", x="x", y="y", y_unit="s",
        series=(Series(name="a", points=((1, 1), (2, 1))), Series(name="b", points=((1, 2), (2, 2)))),
    )  # fmt: skip
    text = "\n".join(sketch(two, 60))
    assert "* a" in text
    assert "o b" in text


def test_an_svg_is_xml_and_a_hostile_name_is_text() -> None:
    picture = draw(plot((1.0, 1e9), (2.0, 2e9), name="<script>alert(1)</script>&\x1b[2J", marks=(("<b>", 1.5),)))
    root = ET.fromstring(picture)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "title", "rect", "text", "line", "polyline", "circle",
    }  # fmt: skip
    assert "script>alert" in "".join(root.itertext())


def test_ticks() -> None:
    assert decades(0, 10) == [1, 10, 100, 1000]
    assert decades(1, 2) == [2, 4]
    assert powers_of_two(0, 3) == [1, 2, 4, 8]
    assert len(powers_of_two(0, 40)) <= 9


@given(st.floats(1e-3, 1e3), st.floats(1.01, 1e6))
def test_the_ends_of_an_area_are_its_corners(low: float, span: float) -> None:
    area = Area((low, low * span), (low, low * span), 40, 12)
    assert (area.column(low), area.column(low * span)) == (0, 39)
    assert (area.row(low), area.row(low * span)) == (11, 0)


def test_every_series_of_the_legend_is_seen_in_the_plot() -> None:
    """Four roofs of which two lie in one row, and all of which share the slope."""
    intensities = [2.0**at for at in range(-4, 14)]
    peaks = {"a": 100.0, "b": 85.0, "c": 1.0, "d": 0.9}
    series = tuple(
        Series(name=name, points=tuple((x, min(peak, 10 * x)) for x in intensities)) for name, peak in peaks.items()
    )
    lines = sketch(Plot(title="", x="x", y="y", y_unit="FLOP/s", series=series), 78)
    for sign in SIGNS[: len(series)]:
        assert "".join(field(lines)).count(sign) >= 3
