"""A plot with two logarithmic axes as SVG, without scripts: a file of its own, and a figure of the lab's page."""

from __future__ import annotations

import math
from html import escape

from gobrrr.model.experiment import Plot
from gobrrr.report.plot import Area
from gobrrr.report.text import sanitise
from gobrrr.report.values import text

SVG_WIDTH_PX, SVG_HEIGHT_PX = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 96, 24, 44, 64
"""Size of the picture without its legend, and the margins around the area, in pixels."""
SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""
LEGEND_PX = 17
"""Height of a line of the legend."""


def draw(plot: Plot) -> str:
    """The plot as one <svg> element."""
    legend = len(plot.series) * LEGEND_PX
    height = SVG_HEIGHT_PX + legend
    body = _body(plot)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SVG_WIDTH_PX} {height}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="12">\n<title>{_safe(plot.title)}</title>\n'
        f'<rect width="{SVG_WIDTH_PX}" height="{height}" fill="#ffffff"/>\n'
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="600">{_safe(plot.title)}</text>\n{body}\n</svg>\n'
    )


def _body(plot: Plot) -> str:
    columns, rows = SVG_WIDTH_PX - LEFT - RIGHT + 1, SVG_HEIGHT_PX - TOP - BOTTOM + 1
    area = Area.of(plot, columns, rows)
    if area is None:
        return f'<text x="{LEFT}" y="{TOP + 20}">no points</text>'
    parts = [*_grid(area, plot), *_marks(area, plot)]
    for at, series in enumerate(plot.series):
        parts += _series(area, series.points, SERIES_COLOURS[at % len(SERIES_COLOURS)])
    return "\n".join([*parts, *_legend(plot)])


def _grid(area: Area, plot: Plot) -> list[str]:
    right, bottom = LEFT + area.columns - 1, TOP + area.rows - 1
    parts = [f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}" fill="none" stroke="#888"/>']
    for y in decades(area.bottom, area.top):
        at = TOP + area.row(y)
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{_safe(text(y, plot.y_unit))}</text>')
    for x in powers_of_two(area.left, area.right):
        at = LEFT + area.column(x)
        parts.append(f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{bottom}" stroke="#eee"/>')
        parts.append(f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{_power(x)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle:.0f}" y="{bottom + 36}" text-anchor="middle">{_safe(plot.x)}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 6}" text-anchor="start" fill="#555">{_safe(plot.y)}</text>')
    return parts


def decades(bottom: float, top: float) -> list[float]:
    """Powers of ten between two binary logarithms; the two ends if there is none."""
    low, high = bottom * math.log10(2), top * math.log10(2)
    found = [10.0**power for power in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]
    return found or ([2.0**bottom, 2.0**top] if top > bottom else [2.0**bottom])


def powers_of_two(left: float, right: float, most: int = 9) -> list[float]:
    """Powers of two between two binary logarithms, at most `most` of them, evenly spaced."""
    first, last = math.ceil(left - 1e-9), math.floor(right + 1e-9)
    step = max(1, math.ceil((last - first + 1) / most))
    return [2.0**power for power in range(first, last + 1, step)]


def _power(x: float) -> str:
    return f"{x:,.0f}" if x >= 1 and x < 1e4 else f"2^{round(math.log2(x))}"


def _marks(area: Area, plot: Plot) -> list[str]:
    parts, bottom = [], TOP + area.rows - 1
    for at, (name, x) in enumerate(plot.marks):
        column = area.column(x) if x > 0 else -1
        if not 0 <= column < area.columns:
            continue
        place, row = LEFT + column, TOP + 14 + 14 * at
        parts.append(f'<line x1="{place}" x2="{place}" y1="{TOP}" y2="{bottom}" stroke="#555" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="{place + 4}" y="{row}" fill="#333">{_safe(name)}</text>')
    return parts


def _series(area: Area, points: tuple[tuple[float, float], ...], colour: str) -> list[str]:
    places = [(LEFT + area.column(x), TOP + area.row(y)) for x, y in points if 0 < x < math.inf and 0 < y < math.inf]
    line = " ".join(f"{x},{y}" for x, y in places)
    dots = [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _legend(plot: Plot) -> list[str]:
    parts = []
    for at, series in enumerate(plot.series):
        y, colour = SVG_HEIGHT_PX + LEGEND_PX * at, SERIES_COLOURS[at % len(SERIES_COLOURS)]
        parts.append(f'<circle cx="{LEFT + 6}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 18}" y="{y}">{_safe(series.name)}</text>')
    return parts


def _safe(name: str) -> str:
    return escape(sanitise(name))
