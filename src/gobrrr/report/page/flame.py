"""The places of the step as a flame graph: each as wide as its time, inner places below outer ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.places import PlaceNode
from gobrrr.report import words
from gobrrr.report.doing import bare
from gobrrr.report.page.markup import Markup, el, folded
from gobrrr.report.page.verdict import cause_colour
from gobrrr.report.text import sanitise

DEVICE_WORKS, PROCESSOR_WORKS = "the device works", "operations compute"
"""The name, in the legend, of time in which the device works, and of time in which a CPU computes."""


def has_places(diagnosis: Diagnosis) -> bool:
    """Whether there is anything to draw."""
    return len(diagnosis.places) > 1 and diagnosis.places[0].step_ns > 0


def flame(diagnosis: Diagnosis) -> Markup | None:
    """The section, closed at first; None if no places are known."""
    if not has_places(diagnosis):
        return None
    lead = (
        f"A step of {units.duration(diagnosis.places[0].step_ns)}: the program, its functions and lines, operations "
        "and kernels. Time in which the device works belongs to the place that launched the work, idle time to the "
        "place where the host is before the next launch. Click a place to zoom to it; the arrow keys move."
    )
    controls = el(
        "div",
        el(
            "label",
            el("span", "Search", class_="hidden"),
            el("input", type="search", id="flame-search", placeholder="Search by name, file, line", autocomplete="off"),
        ),
        el("button", "Whole step", type="button", id="flame-whole"),
        el("span", id="flame-count", class_="count", role="status"),
        class_="controls needs-script",
    )
    label = "The places of the step; the arrow keys move from place to place"
    drawn = el("canvas", id="flame-chart", class_="chart", tabindex="0", role="img", aria_label=label)
    return folded(
        "flame",
        "Flame graph",
        units.things(len(diagnosis.places), "place"),
        controls,
        el("ul", id="flame-legend", class_="legend needs-script"),
        drawn,
        el("p", id="flame-told", class_="after needs-script", aria_live="polite"),
        el(
            "p",
            "The page's script draws this graph; --speedscope FILE writes it to a file.",
            class_="empty without-script",
        ),
        lead=lead,
    )


def flame_data(diagnosis: Diagnosis, name: Callable[[str], int]) -> dict[str, Any]:
    """The columns of the places. `name` returns the index of a text in the page's table; "sort": what takes most of a
    place's time."""
    works = PROCESSOR_WORKS if diagnosis.device_model.on_host else DEVICE_WORKS
    sorts = {works: "saving"}
    columns: dict[str, list[Any]] = {key: [] for key in ("parent", "kind", "name", "source", "calls", "sort")}
    for place in diagnosis.places:
        held = _held(place, works)
        sorts.setdefault(held, cause_colour(held))
        columns["parent"].append(place.parent if place.parent is not None else -1)
        columns["kind"].append(name(place.kind))
        columns["name"].append(name(bare(place) if place.kind in ("call", "module") else sanitise(place.name)))
        columns["source"].append(name(place.source) if place.source else None)
        columns["calls"].append(place.calls)
        columns["sort"].append(list(sorts).index(held))
    return columns | {
        "own": [place.own_ns for place in diagnosis.places],
        "device": [place.device_ns for place in diagnosis.places],
        "works": works,
        "sorts": [{"name": key, "colour": value} for key, value in sorts.items()],
    }


def _held(node: PlaceNode, works: str) -> str:
    """What takes most of a place's time: the device, or a cause on the host."""
    cause, ns = max(node.host_ns.items(), key=lambda item: item[1], default=("", 0))
    return works if node.device_ns >= ns else words.cause(cause)
