"""The sections of the roofline and the timeline: the elements that the script draws in, and captions."""

from __future__ import annotations

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis, OpRow, Timeline
from gobrrr.report import words
from gobrrr.report.page.flame import has_places
from gobrrr.report.page.markup import Markup, el, join, section
from gobrrr.report.page.verdict import cause_colour, predicted


def drawable(row: OpRow) -> bool:
    """Whether a call has a point on the roofline: FLOPs, bytes and time are known and not zero."""
    return bool(row.flop and row.bytes and row.ns)


def roofline(diagnosis: Diagnosis) -> Markup:
    """The roofline section."""
    if not any(drawable(row) for row in diagnosis.ops):
        return section("roofline", "Roofline", el("p", _no_points(diagnosis), class_="empty"))
    controls = el(
        "div",
        _legend([("compute", "compute-bound"), ("memory", "memory-bound")], round_first=True),
        el("label", el("input", type="checkbox", id="all-roofs"), " all roofs", class_="needs-script"),
        class_="controls",
    )
    chart = el("div", id="roofline-chart", class_="chart", role="img", aria_label=_told(diagnosis), tabindex="0")
    lead = (
        "Each point is a kind of call: FLOP per byte moved against FLOP per second; its area is its time. A point on "
        "the line is at the roof. Click a point to find it in the table and on the timeline."
    )
    return section("roofline", "Roofline", controls, chart, el("p", _left_out(diagnosis), class_="after"), lead=lead)


def _no_points(diagnosis: Diagnosis) -> str:
    if not diagnosis.ops:
        return "There is no device work to draw."
    if not any(row.flop is not None for row in diagnosis.ops):
        return "No point can be drawn: the FLOPs and bytes of no operation are known (see Not checked and Notes)."
    return "No point can be drawn: no operation has both FLOPs and bytes."


def _told(diagnosis: Diagnosis) -> str:
    drawn = [row for row in diagnosis.ops if drawable(row)]
    bounds = {bound: sum(row.bound == bound for row in drawn) for bound in ("compute", "memory")}
    parts = ", ".join(f"{number} {bound}-bound" for bound, number in bounds.items())
    return f"Roofline with {len(drawn)} kinds of calls: {parts}. The table of operations has the same numbers."


def _left_out(diagnosis: Diagnosis) -> str:
    out = [row for row in diagnosis.ops if not drawable(row)]
    if not out:
        return ""
    whole = sum(row.ns for row in diagnosis.ops)
    idle = [row for row in out if row.flop == 0]
    share = units.percent(sum(row.ns for row in out) / whole) if whole > 0 else "unknown"
    rest = len(out) - len(idle)
    why = [f"{len(idle)} do no arithmetic (copies, fills, casts)"] if idle else []
    why += [f"{rest} have FLOPs or bytes that are not known"] if rest else []
    return f"{len(out)} kinds of calls ({share} of the device time) are not drawn: {' and '.join(why)}."


def timeline(diagnosis: Diagnosis) -> Markup:
    """The timeline section: one step on the device, with its gaps by cause."""
    line = diagnosis.timeline
    if line is None or not (line.start_ns or line.gap_start_ns):
        return section(
            "timeline", timeline_title(diagnosis), el("p", "There is no device work to draw.", class_="empty")
        )
    names = (
        ("in", "Zoom in"),
        ("out", "Zoom out"),
        ("left", "Earlier"),
        ("right", "Later"),
        ("whole", "Whole step"),
    )
    buttons = [el("button", name, type="button", data_zoom=key) for key, name in names]
    host = has_places(diagnosis) and any(track.place for track in line.host)
    controls = el(
        "div",
        join(_search()) if host else None,
        el("div", buttons, class_="buttons", role="group", aria_label="Zoom and pan"),
        el("span", id="timeline-range", class_="count", role="status"),
        class_="controls needs-script",
    )
    chart = el("div", id="timeline-chart", class_="chart", role="img", aria_label=_line_told(line), tabindex="0")
    pan = "Drag to pan; Ctrl and wheel, pinch or the + and \u2212 keys zoom."
    parts = (_legend(_work(diagnosis, line)), controls, chart, _gaps(line), _cut(line))
    above = " The lanes above the device show what the host does meanwhile." if host else ""
    return section("timeline", timeline_title(diagnosis), *parts, lead=f"{_what_runs(diagnosis, line)}{above} {pan}")


def _search() -> tuple[Markup, Markup]:
    box = el(
        "input", type="search", id="timeline-search", placeholder="Search the host: name, file", autocomplete="off"
    )
    return el("label", el("span", "Search the host", class_="hidden"), box), el(
        "span", id="timeline-found", role="status"
    )


def timeline_title(diagnosis: Diagnosis) -> str:
    """The title of the timeline; a predicted one says so."""
    return "Predicted timeline" if predicted(diagnosis) else "Timeline"


def _what_runs(diagnosis: Diagnosis, line: Timeline) -> str:
    if predicted(diagnosis):
        on = diagnosis.machine or f"device {line.device}"
        return f"One step on {on} as predicted by the model of host and device; nothing was run."
    return f"One step of device {line.device} as it runs without the profiler, replayed from the trace."


def _line_told(line: Timeline) -> str:
    busiest = f"{units.things(len(line.start_ns), 'piece')} of work on {units.things(len(line.streams), 'stream')}"
    host = f", {units.things(sum(len(track.place) for track in line.host), 'host event')}" if line.host else ""
    return (
        f"Timeline of {units.duration(line.length_ns)}: {busiest}, {units.things(len(line.gap_start_ns), 'gap')}{host}."
    )


def _work(diagnosis: Diagnosis, line: Timeline) -> list[tuple[str, str]]:
    """The legend: (colour, name) of what this timeline shows."""
    kinds = [line.kinds[kind] for kind in line.kind]
    bounds = {
        diagnosis.ops[op].bound if 0 <= op < len(diagnosis.ops) else None
        for op, kind in zip(line.op, kinds, strict=True)
        if kind == "compute"
    }
    legend: list[tuple[str, str]] = [(bound, f"{bound}-bound") for bound in ("compute", "memory") if bound in bounds]
    legend += [("unpriced", "not judged")] if bounds - {"compute", "memory"} else []
    legend += [(kind, kind) for kind in ("communication", "transfer") if kind in kinds]
    causes = [words.cause(line.causes[index]) for index in sorted(set(line.gap_cause))]
    legend += [(cause_colour(cause), f"idle: {cause}") for cause in causes]
    host = (
        {diagnosis.places[place].kind for track in line.host for place in track.place}
        if has_places(diagnosis)
        else set()
    )
    named = dict.fromkeys(host_kind(kind) for kind in sorted(host))
    return legend + [(colour, f"host: {name}") for colour, name in named]


HOST_KINDS_SHOWN = {
    "op": ("gc", "operations"),
    "annotation": ("compile", "annotations"),
    "driver": ("sync", "driver calls"),
}
"""Kind of a place on the host's lanes -> (colour class, name in the legend)."""


def host_kind(kind: str) -> tuple[str, str]:
    """(colour class, name in the legend) of a kind of place on the host's lanes."""
    return HOST_KINDS_SHOWN.get(kind, ("python", "Python"))


def _legend(items: list[tuple[str, str]], *, round_first: bool = False) -> Markup:
    marks = [
        el("li", el("i", class_=f"swatch c-{colour}{' round' if round_first and not index else ''}"), name)
        for index, (colour, name) in enumerate(items)
    ]
    return el("ul", marks, class_="legend")


MOST_GAPS, LEAST_GAP_SHARE = 4, 0.002
"""Gaps that are listed, and the share of the step that each must have; chosen."""


def _gaps(line: Timeline) -> Markup | None:
    """The longest gaps as buttons that zoom to them, or one sentence if all are short."""
    lengths = line.gap_duration_ns
    if not lengths:
        return el("p", "The device is never idle in this step.", class_="after")
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])[:MOST_GAPS]
    long = [index for index in order if lengths[index] >= LEAST_GAP_SHARE * line.length_ns]
    if not long:
        longest, together = units.duration(max(lengths)), units.duration(sum(lengths))
        text = f"{len(lengths):,} gaps, none longer than {longest}; together {together}."
        return el("p", text, class_="after")
    return el(
        "details",
        el("summary", "The longest gaps"),
        el("ol", [_gap(line, index) for index in long], class_="gaps"),
        open=True,
    )


def _gap(line: Timeline, index: int) -> Markup:
    cause = words.cause(line.causes[line.gap_cause[index]])
    when = "from the start" if not line.gap_start_ns[index] else f"at {units.duration(line.gap_start_ns[index])}"
    text = f"{units.duration(line.gap_duration_ns[index])} {when}: {cause}"
    swatch = el("i", class_=f"swatch c-{cause_colour(cause)}")
    return el("li", el("button", swatch, text, type="button", data_gap=index))


def _cut(line: Timeline) -> Markup | None:
    out = [f"{units.things(line.left_out, 'more piece')} of work"] if line.left_out else []
    out += [f"{units.things(line.host_left_out, 'more host event')}, the shortest"] if line.host_left_out else []
    return el("p", f"{' and '.join(out)} of this step are not drawn.", class_="after") if out else None
