"""What holds the step, on the page and in a notebook, in the words of the terminal."""

from __future__ import annotations

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report.held import HoldingPlace, held, without_frames
from gobrrr.report.page.markup import Markup, el, join


def places(diagnosis: Diagnosis, *, soft: str | None = None) -> Markup | None:
    """The places as a table; None if none are known. `soft`: the style of secondary text."""
    rows = [_row(place, soft) for place in held(diagnosis)]
    if not rows:
        return None
    missing = without_frames(diagnosis)
    head = el("caption", "Held by", style="text-align:left;font-weight:600")
    return join(
        [
            el("table", head, el("tbody", rows), class_="held"),
            el("div", missing, class_="sub", style=soft) if missing else None,
        ]
    )


def section_of(diagnosis: Diagnosis) -> Markup | None:
    """The section of the page, below the verdict."""
    table = places(diagnosis)
    return el("section", table, id="held", aria_label="What holds the step") if table is not None else None


def _row(place: HoldingPlace, soft: str | None) -> Markup:
    where = el("span", f"{place.where} ", class_="sub", style=soft) if place.where else None
    return el(
        "tr",
        el("td", units.percent(place.share), class_="n", style="text-align:right;vertical-align:top"),
        el(
            "td",
            where,
            el("code", place.what),
            el("div", place.does, class_="sub", style=soft),
            style="text-align:left",
        ),
    )
