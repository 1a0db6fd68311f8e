"""The places of the step as a flame graph: each as wide as its time, what is within it below it."""

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

DEVICE, PROCESSOR = "the device works", "operations compute"
"""What has a place where the host does not hold it: on a device, and on a CPU."""


def has_places(diagnosis: Diagnosis) -> bool:
    """Whether there is anything to draw."""
    return len(diagnosis.places) > 1 and diagnosis.places[0].step_ns > 0


def flame(diagnosis: Diagnosis) -> Markup | None:
    """The section, closed at first; None where no places are known."""
    if not has_places(diagnosis):
        return None
    lead = (
        f"A step of {units.duration(diagnosis.places[0].step_ns)}: the program, its functions and lines, operations "
        "and kernels. While the device works, the time belongs to the launch; while it idles, to where the host is on "
        "the way to the next one. A click makes a place as wide as the step; the arrow keys move."
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
    told = "The places of the step; the arrow keys move from place to place"
    drawn = el("canvas", id="flame-chart", class_="chart", tabindex="0", role="img", aria_label=told)
    return folded(
        "flame",
        "Flame graph",
        units.things(len(diagnosis.places), "place"),
        controls,
        el("ul", id="flame-legend", class_="legend needs-script"),
        drawn,
        el("p", id="flame-told", class_="after needs-script", aria_live="polite"),
        el("p", "Drawn by the page's script; --speedscope FILE writes the same.", class_="empty without-script"),
        lead=lead,
    )


def flame_data(diagnosis: Diagnosis, name: Callable[[str], int]) -> dict[str, Any]:
    """The columns of the places. `name`: the place of a text among those of the page; `sort`: what holds each most."""
    works = PROCESSOR if diagnosis.device_model.on_host else DEVICE
    sorts = {works: "saving"}
    columns: dict[str, list[Any]] = {key: [] for key in ("parent", "kind", "name", "source", "calls", "sort")}
    for each in diagnosis.places:
        held = _held(each, works)
        sorts.setdefault(held, cause_colour(held))
        columns["parent"].append(each.parent if each.parent is not None else -1)
        columns["kind"].append(name(each.kind))
        columns["name"].append(name(bare(each) if each.kind in ("call", "module") else sanitise(each.name)))
        columns["source"].append(name(each.source) if each.source else None)
        columns["calls"].append(each.calls)
        columns["sort"].append(list(sorts).index(held))
    return columns | {
        "own": [each.own_ns for each in diagnosis.places],
        "device": [each.device_ns for each in diagnosis.places],
        "works": works,
        "sorts": [{"name": key, "colour": value} for key, value in sorts.items()],
    }


def _held(node: PlaceNode, works: str) -> str:
    """What has most of a place's time: the device, or a cause of the host's."""
    cause, ns = max(node.host_ns.items(), key=lambda item: item[1], default=("", 0))
    return works if node.device_ns >= ns else words.cause(cause)
