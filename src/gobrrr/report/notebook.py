"""The diagnosis in a notebook: verdict, what holds the step, budget and what to do; a few kilobytes, no scripts."""

from __future__ import annotations

from gobrrr import units
from gobrrr.guarded import GuardedParts
from gobrrr.model.diagnosis import Diagnosis, Prescription
from gobrrr.report import advice, budget, terminal, words
from gobrrr.report.page import held
from gobrrr.report.page.markup import Markup, el, join
from gobrrr.report.page.verdict import row_colour

ROW_COLOURS = {
    "compute": "#2f6fdb", "memory": "#0c8f78", "below-compute": "#8fb2ee", "below-memory": "#84c9bc",
    "unpriced": "#9aa0a8", "communication": "#8a4fc4", "transfer": "#a67c14", "python": "#e9a824",
    "launching": "#d6541b",
}  # fmt: skip
"""Colour class of a budget row -> its colour, as in the page's light theme."""
OTHER_COLOUR = "#c2563f"
"""The colour of any other row."""
MOST_LISTED_TREATMENTS = 5
"""Treatments that are listed; chosen."""
SOFT_STYLE = "opacity:0.7"
"""The style of secondary text."""


def render(diagnosis: Diagnosis) -> str:
    """A summary; `gobrrr.html(diagnosis)` is the whole page."""
    parts = GuardedParts()
    reason = words.reason(diagnosis)
    head = el("strong", words.headline(diagnosis).capitalize(), style="font-size:1.4em")
    sure = el("span", f" certainty: {diagnosis.certainty}", style=SOFT_STYLE)
    rows = [
        el("div", terminal.basename(diagnosis.target), " · ", diagnosis.device or "device unknown", style=SOFT_STYLE),
        el("div", head, sure),
        el("div", f"{reason[:1].upper()}{reason[1:]}.") if reason else None,
        el("div", terminal.wall(diagnosis), style=SOFT_STYLE),
        parts.make("held by", lambda: held.places(diagnosis, soft=SOFT_STYLE), None),
        parts.make("budget", lambda: _budget(diagnosis), None),
        el("div", parts.make("speed of light", lambda: terminal.light(diagnosis), None), style=SOFT_STYLE),
        parts.make("what to do", lambda: _todo(diagnosis), None),
        el(
            "div",
            "For the whole answer: print(diagnosis), or gobrrr.html(diagnosis) as a page",
            style=f"{SOFT_STYLE};margin-top:0.6em",
        ),
    ]
    if parts.failed:
        rows.append(el("div", advice.failed(parts.failed)))
    return el("div", join(rows), style="max-width:52em;line-height:1.5")


def _budget(diagnosis: Diagnosis) -> Markup | None:
    rows = budget.rows(diagnosis.budget)
    if not rows:
        return None
    largest = max(row.share for row in rows) or 1.0
    lines = []
    for index, row in enumerate(rows):
        colour = ROW_COLOURS.get(row_colour(row, index), OTHER_COLOUR)
        fill = f"width:{100 * max(row.share, 0.0) / largest:.1f}%;height:0.6em;border-radius:2px;background:{colour}"
        cells = (
            el("td", f"{words.BUDGET_GROUPS.get(row.kind, row.kind)} {row.label}", style="text-align:left"),
            el("td", units.duration(row.ns), style="text-align:right"),
            el("td", units.percent(row.share), style="text-align:right"),
            el("td", el("div", style=fill), style="width:24em"),
        )
        lines.append(el("tr", *cells))
    return el("table", el("tbody", lines), style="margin:0.6em 0")


def _todo(diagnosis: Diagnosis) -> Markup | None:
    ranked = advice.worth_doing(diagnosis)
    if not ranked:
        return None
    items = [el("li", _line(item)) for item in ranked[:MOST_LISTED_TREATMENTS]]
    return join([el("strong", "What to do"), el("ol", items, style="margin-top:0.2em")])


def _line(item: Prescription) -> Markup:
    return join(
        [
            el("strong", item.treatment),
            f" for {', '.join(item.mends)}: ",
            advice.saved_by(item),
            " predicted",
        ]
    )
