"""The last sections of the page: conditions not checked, notes, the machine's roofs, versions, licences."""

from __future__ import annotations

from importlib.resources import files

from gobrrr import units
from gobrrr.model.diagnosis import DeviceTotals, Diagnosis, Roof
from gobrrr.report.advice import by_need, failed
from gobrrr.report.page.markup import Markup, el, folded, join, section
from gobrrr.report.page.verdict import predicted

LICENCE_ASSETS = files("gobrrr.report") / "assets"
ECHARTS = "Apache ECharts 6.1.0"
"""The chart library with its version."""
LICENCES = (
    ("Apache ECharts: notice", "NOTICE"),
    ("Apache ECharts: Apache-2.0", "LICENSE"),
    ("ZRender: BSD-3-Clause", "LICENSE-zrender"),
    ("d3: BSD-3-Clause", "LICENSE-d3"),
)
"""(title, file) of the licences of what the page carries."""


def not_checked(diagnosis: Diagnosis) -> Markup:
    """The conditions that could not be checked, by what they need, so that they do not look healthy."""
    if not diagnosis.not_checked:
        text = "All conditions that this version knows were checked."
        if predicted(diagnosis):
            text = (
                "All conditions were checked, but what only a run shows (input data, other programs) is not predicted."
            )
        return section("unchecked", "Not checked", el("p", text, class_="empty"))
    lacking, failures = by_need(diagnosis.not_checked)
    rows = [
        el("li", [el("span", code, class_="code") for code in codes], " needs ", need)
        for need, codes in lacking.items()
    ]
    lead = "Conditions that could not be checked. They may hold or not."
    failure = el("p", failed(failures)) if failures else None
    return section("unchecked", "Not checked", failure, el("ul", rows, class_="plain"), lead=lead)


CODE_NOTE_PREFIX = "to paste:\n"
"""The first line of a note with code."""


def notes(diagnosis: Diagnosis) -> Markup | None:
    """The notes of the diagnosis."""
    if not diagnosis.notes:
        return None
    return section("notes", "Notes", el("ul", [el("li", _note(note)) for note in diagnosis.notes], class_="plain"))


def _note(text: str) -> Markup:
    """A note; code to paste keeps its lines."""
    first, *lines = text.split("\n") if text.startswith(CODE_NOTE_PREFIX) else [text]
    return join([first, *([el("pre", el("code", "\n".join(lines)), tabindex="0")] if lines else [])])


def machine(diagnosis: Diagnosis) -> Markup:
    """The ceilings with their sources, the devices and the versions."""
    devices = None if predicted(diagnosis) else _devices(diagnosis.devices)
    return folded(
        "machine",
        "Machine and versions",
        diagnosis.machine or diagnosis.device or "",
        _roofs(diagnosis),
        devices,
        _versions(diagnosis),
    )


def _roofs(diagnosis: Diagnosis) -> Markup:
    if not diagnosis.roofs:
        text = "No ceilings are known for this device, so nothing has a floor. Name a machine with --on."
        return el("p", text, class_="empty")
    heads = [el("th", name, scope="col", class_="n" if name == "ceiling" else None) for name in _ROOF_HEADS]
    name = f"Floors (least times) are computed with the ceilings of {diagnosis.machine}." if diagnosis.machine else ""
    table = el(
        "table", el("thead", el("tr", heads)), el("tbody", [_roof(roof) for roof in diagnosis.roofs]), class_="stack"
    )
    return join([el("p", name), table])


_ROOF_HEADS = ("roof", "ceiling", "provenance", "source")
"""Heads of the table of roofs."""


def ceiling(roof: Roof) -> str:
    """A roof's value with its unit."""
    value = units.rate(roof.value, "FLOP" if roof.kind == "compute" else "B")
    return f"at least {value}" if roof.at_least else value


def _roof(roof: Roof) -> Markup:
    return el(
        "tr",
        el("th", roof.name, scope="row"),
        el("td", ceiling(roof), class_="n"),
        el("td", roof.provenance),
        el("td", roof.source or "not recorded", f"; {roof.at_least}" if roof.at_least else "", class_="sub"),
    )


def _devices(devices: list[DeviceTotals]) -> Markup | None:
    if not devices:
        return None
    heads = ("rank", "device", "busy", "span", "kernels")
    rows = [el("tr", [el("td", cell, class_="n") for cell in _device(item)]) for item in devices]
    table = el(
        "table", el("thead", el("tr", [el("th", name, scope="col", class_="n") for name in heads])), el("tbody", rows)
    )
    return join([el("h3", "Devices over the whole trace"), table])


def _device(item: DeviceTotals) -> tuple[str, ...]:
    busy = units.percent(item.busy_total_ns / item.span_total_ns) if item.span_total_ns > 0 else "unknown"
    return str(item.rank), str(item.device), busy, units.duration(item.span_total_ns), f"{item.kernels:,}"


def _versions(diagnosis: Diagnosis) -> Markup:
    pairs = [
        ("device", diagnosis.device or "unknown"),
        ("machine", diagnosis.machine or "unknown"),
        *((name.removesuffix("_version").replace("_", " "), value) for name, value in diagnosis.versions.items()),
        ("gobrrr", diagnosis.version or "unknown"),
        ("record", f"format {diagnosis.format}"),
    ]
    return join(
        [
            el("h3", "Versions"),
            el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in pairs], class_="sums"),
        ]
    )


def footer(diagnosis: Diagnosis) -> Markup:
    """The program that made the page, and the licences of what the page carries."""
    texts = [join([el("h3", title), el("pre", Markup(_licence(name)), tabindex="0")]) for title, name in LICENCES]
    made = f"Made by gobrrr {diagnosis.version}".rstrip() + " from the diagnosis alone; this file needs no network."
    return el(
        "footer",
        el("p", made),
        el("details", el("summary", f"Charts: {ECHARTS} (Apache-2.0); licences"), texts),
    )


def _licence(name: str) -> str:
    text = (LICENCE_ASSETS / "echarts" / name).read_text(encoding="utf-8")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
