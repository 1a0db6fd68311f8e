"""A measured machine on the screen: each figure beside the datasheet's, the cliffs of its caches, its roofline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.hardware.bounds import busiest, doubtful
from gobrrr.hardware.ceilings import Row, compare, datasheet_of, machine_of
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

GROUPS = {
    "matrix": "Matmul, the best size of a sweep",
    "vector": "Vector units",
    "memory": "DRAM",
    "host": "Host-device link, one direction",
    "launch": "Kernel launches",
    "dispatch": "Framework dispatch, on tensors of a few elements",
    "python": "Python, one thread",
}
NAME, FIGURE, SPREAD = 24, 15, 8
HEAD = f"   {'':<{NAME}}{'measured':>{FIGURE}}{'spread':>{SPREAD}}{'datasheet':>14}{'ratio':>7}"
ROOFS = ("bfloat16", "float16", "tf32", "float32", "float64")
AT_LEAST = ">= "
"""In front of a lower bound."""
WIDE_SPREAD = 0.1
"""Quartiles further apart than this share of the median are called out."""
LEAST_INTENSITY, OCTAVES = 2.0**-4, 18


def pages(found: Sequence[Measurement], page: Page) -> list[Line]:
    """`lines` of each, with the datasheet of its device where there is one."""
    out: list[Line] = []
    for one in found:
        sheet = _sheet(one)
        out += [*([[]] if out else []), *lines(one, compare(one, sheet), machine_of(one, sheet), page)]
    return out


def for_json(measured: Measurement) -> dict[str, Any]:
    """The measurement, and each figure beside the datasheet's."""
    rows = compare(measured, _sheet(measured))
    compared = [
        {**msgspec.to_builtins(one), "value": one.value, "ratio": one.ratio, "above": one.above} for one in rows
    ]
    return {"measured": msgspec.to_builtins(measured), "compared": compared}


def save_roofline(measured: Measurement, path: Path) -> None:
    """Draw the roofline into an SVG file. Raises UsageError where no ceiling is known."""
    plot = roofline(machine_of(measured, _sheet(measured)))
    if plot is None:
        raise UsageError("no roofline: the peaks or the bandwidth were not measured, or too unsteadily; try again")
    write(path, draw(plot).encode())


def _sheet(measured: Measurement) -> Machine | None:
    return datasheet_of(measured.environment.device_name, measured.environment.memory_bytes)


def lines(measured: Measurement, rows: Sequence[Row], roofs: Machine, page: Page) -> list[Line]:
    """The whole answer: what was measured, the pictures, what was not measured and why, and notes."""
    out: list[Line] = [*_head(measured, page), *_busy(measured, page), []]
    for group, title in GROUPS.items():
        out += _group(title, [one for one in rows if one.group == group])
    out += [*listing.observer(roofs.observer, page), []] if roofs.observer else []
    out += _above(rows, page) + _wide(rows, page)
    for plot in plots(measured, roofs):
        out += [[(" " + line, "")] for line in sketch(plot, page.width - 2)] + [[]]
    return out + _feet(measured, page)


def _busy(measured: Measurement, page: Page) -> list[Line]:
    """That others used the machine meanwhile, and what becomes of the figures."""
    shared, names = busiest(measured), [f"{one.group} {one.name}" for one in doubtful(measured)]
    if shared is None:
        return []
    said = f"The machine was busy: {shared.in_words()}."
    if names:
        said += f" Lower bounds because of it, or because repeats differ: {', '.join(names)}."
        said += " A diagnosis on this machine measures them again when it is quiet; so does `gobrrr machine`."
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


def _group(title: str, rows: Sequence[Row]) -> list[Line]:
    if not rows:
        return []
    sheet = any(one.datasheet for one in rows)
    head = HEAD if sheet else HEAD[: 3 + NAME + FIGURE + SPREAD]
    return [[(f" {title}", "bold")], [(head, "dim")], *(_row(one) for one in rows), []]


def _row(one: Row) -> Line:
    name = f"{one.name}, {one.at}" if one.group == "matrix" and one.at else one.name
    figure = f"{AT_LEAST if one.at_least else ''}{text(one.value, one.unit)}"
    cells = f"   {name:<{NAME}}{figure:>{FIGURE}}{spread(one.amount):>{SPREAD}}"
    if one.datasheet is None:
        return [(cells, "")]
    quoted = text(one.datasheet.value, one.unit)
    flag = ("  above", "bold yellow") if one.above else (f"  {_word(one.datasheet)}", "dim")
    return [(f"{cells}{quoted:>14}{one.ratio or 0:>7.2f}", ""), flag]


def _word(ceiling: Ceiling) -> str:
    return "" if ceiling.provenance == "datasheet" else ceiling.provenance


def _above(rows: Sequence[Row], page: Page) -> list[Line]:
    found = [one for one in rows if one.above]
    if not found:
        return []
    names = ", ".join(f"{one.group} {one.name} ({one.ratio:.2f} of it)" for one in found)
    said = f"Above the datasheet: {names}. One of the two is wrong, or the clock ran above the one it assumes."
    return [*page.wrapped(said, first=" ! "), []]


def _wide(rows: Sequence[Row], page: Page) -> list[Line]:
    wide = [one for one in rows if one.amount.spread > WIDE_SPREAD and one.group in GROUPS]
    found = [f"{one.group} {one.name} ({spread(one.amount)})" for one in wide]
    if not found:
        return []
    return [*page.wrapped(f"Wide spread, read with care: {', '.join(found)}.", first=" ! "), []]


def _feet(measured: Measurement, page: Page) -> list[Line]:
    said = "Spread: distance of the quartiles over the median."
    if doubtful(measured):
        said += f" {AT_LEAST.strip()}: the best of the repeats; the machine may do more."
    out: list[Line] = page.wrapped(said, first=" ", style="dim")
    for one in measured.skipped:
        said = f"not measured: {sanitise(one.what)}: {sanitise(one.why)}"
        out += page.wrapped(said, first=f" {page.glyphs.dot} ", style="dim")
    for note in measured.notes:
        out += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return out


def plots(measured: Measurement, roofs: Machine) -> list[Plot]:
    """Matmul by size, bandwidth by working set, the all-reduce by message, and the roofline: those that there are."""
    matmuls = [one for one in measured.curves if one.name.startswith("matmul")]
    others = [one for one in measured.curves if not one.name.startswith("matmul")]
    found = [_plot("Matmul by size", matmuls)] if matmuls else []
    found += [_plot(one.name.capitalize(), [one]) for one in others]
    roof = roofline(roofs)
    return [*found, *([roof] if roof else [])]


def _plot(title: str, curves: Sequence[Curve]) -> Plot:
    names = {one.name: one.name.removeprefix("matmul, ") for one in curves}
    unit = curves[0].x_unit
    return Plot(
        title=title,
        x=f"working set or message ({unit})" if unit == "B" else f"{unit} of an n x n x n matmul",
        y=curves[0].y_unit,
        y_unit=curves[0].y_unit,
        series=tuple(
            Series(name=names[one.name], points=tuple((each.x, each.y.value) for each in one.points)) for one in curves
        ),
    )


def roofline(machine: Machine) -> Plot | None:
    """min(peak, bandwidth x intensity) of the units that are known, with the ridge of each; None without bandwidth."""
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
    """The roofs, the highest first; of units with nearly the same peak (within 10 %) one is enough."""
    found = [
        (f"{dtype} matmul", machine.matrix_flop_per_s[dtype]) for dtype in ROOFS if dtype in machine.matrix_flop_per_s
    ]
    found += [(f"{dtype} vector", one) for dtype, one in machine.vector_flop_per_s.items()]
    found.sort(key=lambda each: -each[1].value)
    kept: list[tuple[str, Ceiling]] = []
    for name, peak in found:
        if not kept or peak.value < 0.9 * kept[-1][1].value:
            kept.append((name, peak))
    return kept[:4]


def _roof(peak: float, bandwidth: float, intensities: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Samples of the roof with its ridge among them."""
    ridge = peak / bandwidth
    return tuple((x, min(peak, bandwidth * x)) for x in sorted({*intensities, ridge}))
