"""A prediction's machines compared: the step's time on each, and the ridge of each against the step's intensity."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from gobrrr import units
from gobrrr.model.diagnosis import ChangedOp, Diagnosis, MachineRow
from gobrrr.report import prediction
from gobrrr.report.page.markup import Markup, code, el, join, section
from gobrrr.report.page.verdict import known
from gobrrr.report.prediction import bound
from gobrrr.report.text import sanitise, short_name

ROW_REM, AROUND_REM = 2.6, 3.6
"""Height of one machine in a chart, and of the axis and the labels above the bars, in rem."""
MOST_CHANGED_LISTED = 3
"""Operations with a changed bottleneck that are listed for a machine; chosen."""
SIDES = (("compute", "compute"), ("memory", "memory"), ("launching", "overhead"), ("unpriced", "the rest"))
"""(colour class, name) of the parts of a step."""
BOUNDS = {"overhead": "launching", "mixed": "unexplained", "unknown": "unpriced"}
"""Regime -> its colour class, if that has another name."""


def own(name: str) -> str:
    """The text of a script or a style of one section."""
    return (files("gobrrr.report") / "page" / name).read_text(encoding="utf-8")


def machines(diagnosis: Diagnosis) -> Markup | None:
    """The section of a prediction; None for other diagnoses."""
    rows = diagnosis.machines
    if not rows:
        return None
    lead = (
        "The same step on other hardware, predicted from the operations that it issues; nothing was run. The interval "
        "goes from a fast host with fast kernels to a slow host with slow kernels."
    )
    many = "" if len(rows) == 1 else "s"
    return section(
        "machines",
        f"On th{'is' if len(rows) == 1 else 'ese'} machine{many}",
        _legend(rows),
        _chart("machines-chart", rows, _told(rows)),
        _table(rows),
        el("p", prediction.host(rows[0]), " ", prediction.memory(diagnosis), class_="after"),
        _gap(diagnosis),
        lead=lead,
    )


def _chart(name: str, rows: list[MachineRow], told: str) -> Markup:
    height = f"height:{ROW_REM * len(rows) + AROUND_REM:.1f}rem"
    return el("div", id=name, class_="chart", role="img", aria_label=told, style=height)


def _told(rows: list[MachineRow]) -> str:
    steps = "; ".join(f"{row.machine} {units.duration(row.step_ns)}" for row in rows)
    return f"Predicted step on each machine: {steps}. The table has the same numbers."


def _legend(rows: list[MachineRow]) -> Markup:
    parts = [_parts(row) for row in rows]
    marks = [
        el("li", el("i", class_=f"swatch c-{colour}"), name)
        for index, (colour, name) in enumerate(SIDES)
        if any(part[index] > 0 for part in parts)
    ]
    marks.append(el("li", el("i", class_="mark device"), "device time"))
    marks.append(el("li", el("i", class_="mark interval"), "interval"))
    return el("ul", marks, class_="legend needs-script")


def _parts(row: MachineRow) -> list[float]:
    """Nanoseconds of the step by side, in the order of `SIDES`; they add up to the step."""
    shares = (row.compute_share, row.memory_share, row.overhead_share)
    rest = max(1.0 - sum(shares), 0.0)
    return [share * row.step_ns if share > 0.0005 else 0.0 for share in (*shares, rest)]


MACHINE_HEADS = ("machine", "step", "device", "host", "bound", "memory", "speed of light", "what changes")
"""Heads of the table of machines."""


def _table(rows: list[MachineRow]) -> Markup:
    numbers = {"step", "device", "host", "speed of light"}
    heads = [el("th", name, scope="col", class_="n" if name in numbers else None) for name in MACHINE_HEADS]
    lines = [_row(row, rows[0]) for row in rows]
    caption = el("caption", "The predicted step on each machine", class_="hidden")
    table = el("table", caption, el("thead", el("tr", heads)), el("tbody", lines), id="machines-table")
    return el("div", table, class_="scroll", tabindex="0")


def _row(row: MachineRow, first: MachineRow) -> Markup:
    light = row.speed_of_light_ns / row.step_ns if row.speed_of_light_ns is not None and row.step_ns > 0 else None
    fits = {True: "fits", False: "too big", None: "not known"}[row.fits]
    interval = el("span", units.duration_range(row.low_ns, row.high_ns), class_="sub")
    bound = el("i", class_=f"swatch c-{BOUNDS.get(row.regime, row.regime)}")
    return el(
        "tr",
        el("th", row.machine, el("span", f"{row.ceilings} ceilings", class_="sub"), scope="row"),
        el("td", el("b", units.duration(row.step_ns)), interval, class_="n", data_label="step"),
        el("td", units.duration(row.device_ns), class_="n", data_label="device"),
        el("td", units.duration(row.host_ns), class_="n", data_label="host"),
        el("td", bound, row.regime, class_="bound", data_label="bound"),
        el("td", fits, class_="too-big" if row.fits is False else None, data_label="memory"),
        el("td", known(units.percent(light)), class_="n", data_label="speed of light"),
        el("td", _changes(row, first), class_="changes", data_label="what changes"),
    )


def _changes(row: MachineRow, first: MachineRow) -> Markup:
    """The speed relative to the first machine, and the operations that change their bottleneck."""
    if row is first:
        return el("span", "the others are compared with this one", class_="sub")
    factor = f"{first.step_ns / row.step_ns:.2f} times as fast" if row.step_ns > 0 else "speed unknown"
    factor = factor.replace("1.00 times as", "as")
    if not row.changed:
        return join([factor, el("span", bound(row), class_="sub")])
    items = [el("li", _changed(item)) for item in row.changed[:MOST_CHANGED_LISTED]]
    more = len(row.changed) - MOST_CHANGED_LISTED
    rest = el("li", f"and {more} more", class_="sub") if more > 0 else None
    return join([f"{factor}; the bottleneck changes for", el("ul", items, rest)])


def _changed(item: ChangedOp) -> Markup:
    name = short_name(item.op).removeprefix("aten::")
    told = sanitise(f"{item.op} {item.shapes}, {units.duration(item.ns)} a step there")
    colour = item.bound if item.bound in ("compute", "memory") else "unpriced"
    return join([code(told, short=name), el("span", el("i", class_=f"swatch c-{colour}"), item.bound, class_="sub")])


def _gap(diagnosis: Diagnosis) -> Markup:
    """The article's widening gap between compute and bandwidth, with this step in it."""
    rows = diagnosis.machines
    title = el("h3", "The widening gap")
    if step_intensity(rows) is None or not any(row.ridge_flop_per_byte for row in rows):
        return join([title, el("p", prediction.gap(rows), class_="empty")])
    text = (
        "A machine's ridge is the FLOP (dense, 16-bit) that it can do while it moves a byte: an operation with fewer "
        "FLOP a byte is bound by memory there. The step's figure is an average over its operations."
    )
    if fused_intensity(diagnosis) is not None:
        text += " Dashed: the step if it moved only its compulsory bytes."
    legend = el(
        "ul",
        el("li", el("i", class_="swatch round c-memory"), "ridge above the step's average"),
        el("li", el("i", class_="swatch round c-compute"), "ridge below it"),
        class_="legend needs-script",
    )
    return join([
        title, el("p", text, class_="lead"), legend, _chart("gap-chart", rows, prediction.gap(rows)),
        el("p", prediction.gap(rows), class_="after"),
    ])  # fmt: skip


def step_intensity(rows: list[MachineRow]) -> float | None:
    """The step's FLOP per byte as run, the same on every machine; None if not known."""
    return next((row.step_flop_per_byte for row in rows if row.step_flop_per_byte), None)


def fused_intensity(diagnosis: Diagnosis) -> float | None:
    """The step's FLOP per compulsory byte, the most that fusion can reach; None if not known."""
    flop, moved = diagnosis.totals.flop, diagnosis.totals.bytes_compulsory
    return flop / moved if flop and moved else None


def machines_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The data of the two charts. Unknown is null."""
    return {
        "rows": [_data(row) for row in diagnosis.machines],
        "sides": [{"colour": colour, "name": name} for colour, name in SIDES],
        "own": step_intensity(diagnosis.machines),
        "fused": fused_intensity(diagnosis),
    }


def _data(row: MachineRow) -> dict[str, Any]:
    return {
        "name": sanitise(row.machine),
        "step": row.step_ns,
        "low": row.low_ns,
        "high": row.high_ns,
        "device": row.device_ns,
        "host": row.host_ns,
        "bound": row.regime,
        "light": row.speed_of_light_ns,
        "parts": _parts(row),
        "ridge": row.ridge_flop_per_byte,
    }
