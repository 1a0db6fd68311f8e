"""A measured machine on the terminal: its figures beside the datasheet's, plots by size, and its roofline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.hardware.bounds import busiest, doubtful
from gobrrr.hardware.ceilings import CeilingRow, compare, datasheet_of, machine_of
from gobrrr.model.experiment import Plot, Series
from gobrrr.model.machine import Ceiling, Machine
from gobrrr.model.measured import Curve, Measurement
from gobrrr.report import listing
from gobrrr.report.layout import Line, Page
from gobrrr.report.plot import sketch
from gobrrr.report.svg import draw
from gobrrr.report.text import sanitise
from gobrrr.report.values import spread, text
from gobrrr.system.files import write

MEASUREMENT_GROUPS = {
    "matrix": "Matmul, the best size of a sweep",
    "vector": "Vector units",
    "memory": "DRAM",
    "host": "Host-device link, one direction",
    "launch": "Kernel launches",
    "dispatch": "Framework dispatch, on tensors of a few elements",
    "python": "Python, one thread",
}
"""Group of measurements -> its heading, in the order of the page."""

NAME, FIGURE_CELLS, SPREAD = 24, 15, 8
"""Widths of the columns, in terminal cells."""
HEAD = f"   {'':<{NAME}}{'measured':>{FIGURE_CELLS}}{'spread':>{SPREAD}}{'datasheet':>14}{'ratio':>7}"
MATMUL_ROOFS = ("bfloat16", "float16", "tf32", "float32", "float64")
"""Number types whose matmul peak is a roof of the roofline."""
AT_LEAST = ">= "
"""In front of a lower bound."""
WIDE_SPREAD = 0.1
"""A spread above this share of the median is pointed out; chosen."""
LEAST_INTENSITY, OCTAVES = 2.0**-4, 18
"""The roofline begins at this intensity (FLOP/B) and has a sample per doubling."""


def pages(found: Sequence[Measurement], page: Page) -> list[Line]:
    """The page of each measurement, compared with the datasheet of its device if there is one."""
    out: list[Line] = []
    for measurement in found:
        sheet = _sheet(measurement)
        out += [
            *([[]] if out else []),
            *lines(measurement, compare(measurement, sheet), machine_of(measurement, sheet), page),
        ]
    return out


def for_json(measured: Measurement) -> dict[str, Any]:
    """The measurement, and each figure beside the datasheet's."""
    rows = compare(measured, _sheet(measured))
    compared = [
        {**msgspec.to_builtins(row), "value": row.value, "ratio": row.ratio, "above": row.above} for row in rows
    ]
    return {"measured": msgspec.to_builtins(measured), "compared": compared}


def save_roofline(measured: Measurement, path: Path) -> None:
    """Draw the roofline into an SVG file. Raises UsageError if no ceiling is known."""
    plot = roofline(machine_of(measured, _sheet(measured)))
    if plot is None:
        raise UsageError("no roofline: the peaks or the bandwidth were not measured, or varied too much; try again")
    write(path, draw(plot).encode())


def _sheet(measured: Measurement) -> Machine | None:
    return datasheet_of(measured.environment.device_name, measured.environment.memory_bytes)


def lines(measured: Measurement, rows: Sequence[CeilingRow], roofs: Machine, page: Page) -> list[Line]:
    """The page of one measurement: figures, plots, what was not measured and why, and notes."""
    out: list[Line] = [*_head(measured, page), *_busy(measured, page), []]
    for group, title in MEASUREMENT_GROUPS.items():
        out += _group(title, [row for row in rows if row.group == group])
    out += [*listing.observer(roofs.observer, page), []] if roofs.observer else []
    out += _above(rows, page) + _wide(rows, page)
    for plot in plots(measured, roofs):
        out += [[(" " + line, "")] for line in sketch(plot, page.width - 2)] + [[]]
    return out + _feet(measured, page)


def _busy(measured: Measurement, page: Page) -> list[Line]:
    """That other programs used the machine meanwhile, and which figures are affected."""
    shared, names = busiest(measured), [f"{entry.group} {entry.name}" for entry in doubtful(measured)]
    if shared is None:
        return []
    said = f"The machine was busy: {shared.in_words()}."
    if names:
        said += f" These are lower bounds because of it, or because repeats differ: {', '.join(names)}."
        said += " They are measured again by `gobrrr machine`, or by a diagnosis here, when the machine is quiet."
    return page.wrapped(said, first=" ! ", style="yellow")


def _head(measured: Measurement, page: Page) -> list[Line]:
    env = measured.environment
    first: Line = [
        (f" {sanitise(env.device_name)}", "bold"),
        (f"{page.joint}measured in {measured.duration_s:.0f} s", ""),
    ]
    versions = [f"torch {env.torch}", f"driver {env.driver}" if env.driver else "", f"Python {env.python}"]
    parts = [*versions, f"compiler {env.compiler}" if env.compiler else "no fusing compiler", env.date]
    return [first, *page.wrapped(sanitise(page.joint.join(part for part in parts if part)), first=" ", style="dim")]


def _group(title: str, rows: Sequence[CeilingRow]) -> list[Line]:
    if not rows:
        return []
    sheet = any(row.datasheet for row in rows)
    head = HEAD if sheet else HEAD[: 3 + NAME + FIGURE_CELLS + SPREAD]
    return [[(f" {title}", "bold")], [(head, "dim")], *(_row(row) for row in rows), []]


def _row(row: CeilingRow) -> Line:
    name = f"{row.name}, {row.at}" if row.group == "matrix" and row.at else row.name
    figure = f"{AT_LEAST if row.at_least else ''}{text(row.value, row.unit)}"
    cells = f"   {name:<{NAME}}{figure:>{FIGURE_CELLS}}{spread(row.amount):>{SPREAD}}"
    if row.datasheet is None:
        return [(cells, "")]
    quoted = text(row.datasheet.value, row.unit)
    flag = ("  above", "bold yellow") if row.above else (f"  {_word(row.datasheet)}", "dim")
    return [(f"{cells}{quoted:>14}{row.ratio or 0:>7.2f}", ""), flag]


def _word(ceiling: Ceiling) -> str:
    return "" if ceiling.provenance == "datasheet" else ceiling.provenance


def _above(rows: Sequence[CeilingRow], page: Page) -> list[Line]:
    found = [row for row in rows if row.above]
    if not found:
        return []
    names = ", ".join(f"{row.group} {row.name} ({row.ratio:.2f} of it)" for row in found)
    said = (
        f"Above the datasheet: {names}. Either figure may be wrong, or the clock ran faster than the datasheet assumes."
    )
    return [*page.wrapped(said, first=" ! "), []]


def _wide(rows: Sequence[CeilingRow], page: Page) -> list[Line]:
    wide = [row for row in rows if row.amount.spread > WIDE_SPREAD and row.group in MEASUREMENT_GROUPS]
    found = [f"{row.group} {row.name} ({spread(row.amount)})" for row in wide]
    if not found:
        return []
    return [*page.wrapped(f"Wide spread, so less certain: {', '.join(found)}.", first=" ! "), []]


def _feet(measured: Measurement, page: Page) -> list[Line]:
    said = "Spread: interquartile range over the median."
    if doubtful(measured):
        said += f" {AT_LEAST.strip()}: a lower bound, the best of the repeats."
    out: list[Line] = page.wrapped(said, first=" ", style="dim")
    for skipped in measured.skipped:
        said = f"not measured: {sanitise(skipped.what)}: {sanitise(skipped.why)}"
        out += page.wrapped(said, first=f" {page.glyphs.dot} ", style="dim")
    for note in measured.notes:
        out += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return out


def plots(measured: Measurement, roofs: Machine) -> list[Plot]:
    """The plots: matmul by size, bandwidth by working set, all-reduce by message size, and the roofline."""
    matmuls = [curve for curve in measured.curves if curve.name.startswith("matmul")]
    others = [curve for curve in measured.curves if not curve.name.startswith("matmul")]
    found = [_plot("Matmul by size", matmuls)] if matmuls else []
    found += [_plot(other.name.capitalize(), [other]) for other in others]
    roof = roofline(roofs)
    return [*found, *([roof] if roof else [])]


def _plot(title: str, curves: Sequence[Curve]) -> Plot:
    names = {curve.name: curve.name.removeprefix("matmul, ") for curve in curves}
    unit = curves[0].x_unit
    return Plot(
        title=title,
        x=f"working set or message ({unit})" if unit == "B" else f"{unit} of an n x n x n matmul",
        y=curves[0].y_unit,
        y_unit=curves[0].y_unit,
        series=tuple(
            Series(name=names[curve.name], points=tuple((point.x, point.y.value) for point in curve.points))
            for curve in curves
        ),
    )


def roofline(machine: Machine) -> Plot | None:
    """min(peak, bandwidth x intensity) of each unit with a known peak, and the highest ridge; None if unknown."""
    bandwidth = machine.memory_bytes_per_s
    peaks = _peaks(machine)
    if bandwidth is None or not peaks:
        return None
    intensities = [LEAST_INTENSITY * 2.0**at for at in range(OCTAVES)]
    series = tuple(
        Series(name=f"{name}: {units.rate(peak.value, 'FLOP')}", points=_roof(peak.value, bandwidth.value, intensities))
        for name, peak in peaks
    )
    name, top = peaks[0]
    ridge = (f"ridge, {name}: {top.value / bandwidth.value:.3g} FLOP/B", top.value / bandwidth.value)
    title = f"Roofline of {sanitise(machine.device_name or machine.name)}: DRAM at {units.rate(bandwidth.value)}"
    return Plot(title=title, x="intensity (FLOP/B)", y="FLOP/s", y_unit="FLOP/s", series=series, marks=(ridge,))


def _peaks(machine: Machine) -> list[tuple[str, Ceiling]]:
    """At most four roofs, highest first; of units whose peaks differ by less than 10 %, only the highest."""
    found = [
        (f"{dtype} matmul", machine.matrix_flop_per_s[dtype])
        for dtype in MATMUL_ROOFS
        if dtype in machine.matrix_flop_per_s
    ]
    found += [(f"{dtype} vector", ceiling) for dtype, ceiling in machine.vector_flop_per_s.items()]
    found.sort(key=lambda roof: -roof[1].value)
    kept: list[tuple[str, Ceiling]] = []
    for name, peak in found:
        if not kept or peak.value < 0.9 * kept[-1][1].value:
            kept.append((name, peak))
    return kept[:4]


def _roof(peak: float, bandwidth: float, intensities: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Samples of a roof, with its ridge."""
    ridge = peak / bandwidth
    return tuple((x, min(peak, bandwidth * x)) for x in sorted({*intensities, ridge}))
