"""A plot with two logarithmic axes in plain characters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from gobrrr.model.experiment import Plot
from gobrrr.report.text import sanitise
from gobrrr.report.values import text

SIGNS = "*o+x#@%&"
"""The sign of each series; cells in which several series meet are divided among them."""
PLOT_HEIGHT_ROWS = 14
"""Rows of the area."""
Y_LABEL_CELLS = 13
"""Width of the labels of the y axis."""
MARK_SIGN = ":"
"""The sign of a marked x."""
X_LABEL_CELLS = 12
"""Room for one label of the x axis."""
X_UNITS = ("FLOP/B", "B", "s")
"""Units of x that its labels carry, given in brackets at the end of its name."""


def sketch(plot: Plot, width: int, height: int = PLOT_HEIGHT_ROWS) -> list[str]:
    """The plot as lines of at most `width` characters: title, y axis, curves, x axis, legend."""
    area = Area.of(plot, width - Y_LABEL_CELLS - 2, height)
    if area is None:
        return [sanitise(plot.title), "  (no points)"]
    rows = [[" "] * area.columns for _ in range(area.rows)]
    for _, x in plot.marks:
        _column(rows, area, x)
    _draw(rows, area, [series.points for series in plot.series])
    lines = [_line(area, at, cells, plot.y_unit) for at, cells in enumerate(rows)]
    return [sanitise(plot.title), *lines, *_feet(plot, area), *_legend(plot, width)]


class Area:
    """Maps logarithms of values to columns and rows."""

    def __init__(self, xs: tuple[float, float], ys: tuple[float, float], columns: int, rows: int) -> None:
        self.left, self.right = (math.log2(x) for x in xs)
        self.bottom, self.top = (math.log2(y) for y in ys)
        self.columns, self.rows = max(10, columns), rows

    @classmethod
    def of(cls, plot: Plot, columns: int, rows: int) -> Area | None:
        """The area that contains every point; None if no point is positive and finite."""
        points = [point for series in plot.series for point in series.points if _drawable(point)]
        if not points:
            return None
        xs, ys = [x for x, _ in points], [y for _, y in points]
        return cls((min(xs), max(xs)), (min(ys), max(ys)), columns, rows)

    def column(self, x: float) -> int:
        """The column of x, which may lie outside."""
        return self._place(math.log2(x), self.left, self.right, self.columns)

    def row(self, y: float) -> int:
        """The row of y; row 0 is the top."""
        return self.rows - 1 - self._place(math.log2(y), self.bottom, self.top, self.rows)

    def x(self, column: int) -> float:
        """The x in the middle of a column."""
        return float(2.0 ** (self.left + (self.right - self.left) * column / (self.columns - 1)))

    def y(self, row: int) -> float:
        """The y in the middle of a row."""
        return float(2.0 ** (self.top - (self.top - self.bottom) * row / (self.rows - 1)))

    @staticmethod
    def _place(value: float, low: float, high: float, cells: int) -> int:
        return round((value - low) / (high - low) * (cells - 1)) if high > low else (cells - 1) // 2


def _drawable(point: tuple[float, float]) -> bool:
    return all(0 < value < math.inf for value in point)


def _draw(rows: list[list[str]], area: Area, series: Sequence[Iterable[tuple[float, float]]]) -> None:
    """Draw the points of all series, so that each series stays visible, and dotted lines between them."""
    through: dict[tuple[int, int], list[int]] = {}
    for at, points in enumerate(series):
        places = [(area.column(x), area.row(y)) for x, y in points if _drawable((x, y))]
        _joined(rows, places)
        for place in dict.fromkeys(places):
            through.setdefault(place, []).append(at)
    seen = [0] * len(series)
    for (column, row), those in sorted(through.items(), key=lambda item: len(item[1])):  # cells of one series first
        rarest = min(those, key=lambda at: (seen[at], -at))
        seen[rarest] += 1
        rows[row][column] = SIGNS[rarest % len(SIGNS)]


def _joined(rows: list[list[str]], places: Sequence[tuple[int, int]]) -> None:
    """Straight lines between the points of a series, in free cells."""
    for (c0, r0), (c1, r1) in pairwise(places):
        for column in range(c0 + 1, c1):
            row = round(r0 + (r1 - r0) * (column - c0) / (c1 - c0))
            if rows[row][column] in f" {MARK_SIGN}":
                rows[row][column] = "."


def _column(rows: list[list[str]], area: Area, x: float) -> None:
    column = area.column(x) if x > 0 else -1
    if 0 <= column < area.columns:
        for row in rows:
            row[column] = MARK_SIGN


def _line(area: Area, at: int, cells: list[str], unit: str) -> str:
    label = text(area.y(at), unit) if at % 4 == 0 or at == area.rows - 1 else ""
    return f"{label[:Y_LABEL_CELLS]:>{Y_LABEL_CELLS}} |{''.join(cells)}".rstrip()


def _feet(plot: Plot, area: Area) -> list[str]:
    """The x axis with as many labels as fit, and its name."""
    xs = sorted({x for series in plot.series for x, y in series.points if _drawable((x, y))})
    many = min(len(xs), max(2, area.columns // X_LABEL_CELLS))
    labels, free = [" "] * (area.columns + X_LABEL_CELLS), 0
    for at in range(many):
        x = xs[round(at * (len(xs) - 1) / max(1, many - 1))]
        column, label = area.column(x), _x_text(x, plot.x)
        start = min(max(0, column - len(label) // 2), area.columns - len(label))
        if start >= free:
            labels[start : start + len(label)] = label
            free = start + len(label) + 2
    margin = " " * (Y_LABEL_CELLS + 2)
    axis = f"{' ' * Y_LABEL_CELLS} +{'-' * area.columns}"
    return [axis, (margin + "".join(labels)).rstrip(), f"{margin}{plot.x}"]


def _x_text(x: float, name: str) -> str:
    unit = next((unit for unit in X_UNITS if name.endswith(f"({unit})")), "")
    return text(x, unit) if unit else f"{x:,.0f}" if x >= 1 else f"{x:.3g}"


def _legend(plot: Plot, width: int) -> list[str]:
    """The meaning of each sign and mark, in as few lines as possible."""
    parts = [f"{SIGNS[at % len(SIGNS)]} {sanitise(series.name)}" for at, series in enumerate(plot.series)]
    parts += [f"{MARK_SIGN} {sanitise(name)}" for name, _ in plot.marks]
    lines, line = [], " "
    for part in parts:
        if len(line) + len(part) + 3 > width and line.strip():
            lines.append(line.rstrip())
            line = " "
        line += f"  {part}"
    return [*lines, line.rstrip()] if line.strip() else lines
