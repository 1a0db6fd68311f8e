"""The top of the page: the target, the verdict and its reason, the main numbers, and the budget."""

from __future__ import annotations

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report import budget, terminal, words
from gobrrr.report.page.markup import Markup, bar, el, join, section

COLOURED_KINDS = ("compute", "memory", "communication", "transfer")
"""Kinds of budget lines with a colour class of the same name."""


def predicted(diagnosis: Diagnosis) -> bool:
    """Whether the diagnosis is a prediction: nothing was run."""
    return diagnosis.origin == "static"


def known(value: str) -> str:
    """A formatted number, or "unknown" instead of a question mark."""
    return "unknown" if value == units.UNKNOWN_TEXT else value


def verdict(diagnosis: Diagnosis) -> Markup:
    """The verdict with its reason and the four main numbers."""
    evidence = [el("li", item) for item in diagnosis.evidence]
    sure = el("span", "certainty: ", el("b", diagnosis.certainty), class_=f"badge sure-{diagnosis.certainty}")
    return el(
        "section",
        el("p", _about(diagnosis), class_="about"),
        el("h1", words.headline(diagnosis).capitalize(), id="verdict-title"),
        el("p", _sentence(words.reason(diagnosis)), " ", sure, class_="reason"),
        *(el("p", caveat, class_="caveat", role="note") for caveat in diagnosis.caveats),
        el("dl", _tiles(diagnosis), class_="tiles"),
        el("h2", "Evidence", class_="quiet") if evidence else None,
        el("ul", evidence, class_="plain") if evidence else None,
        id="verdict",
        class_=f"regime-{diagnosis.regime}",
        aria_labelledby="verdict-title",
    )


def _about(diagnosis: Diagnosis) -> list[str | Markup]:
    """The target, the device, and the number of steps and ranks."""
    steps = units.things(diagnosis.steps, "step")
    how = (
        "predicted; nothing was run"
        if predicted(diagnosis)
        else diagnosis.steps_from.removeprefix(f"{diagnosis.steps} ")
    )
    how = f"run here: {diagnosis.run_by}" if diagnosis.run_by is not None else how
    parts = [diagnosis.device or "device unknown", f"{steps} ({how})" if how else steps]
    if diagnosis.ranks > 1:
        parts.append(f"{diagnosis.ranks:,} ranks")
    return [el("b", terminal.basename(diagnosis.target)), *(Markup(f" · {el('span', part)}") for part in parts)]


def _sentence(phrase: str) -> str:
    return f"{phrase[:1].upper()}{phrase[1:]}." if phrase else ""


def _tiles(diagnosis: Diagnosis) -> Markup:
    without = diagnosis.unprofiled_wall_ns
    if predicted(diagnosis):
        return join([_tile(*tile) for tile in _predicted_tiles(diagnosis)])
    timed = len(diagnosis.times.ns) if diagnosis.times is not None else 0
    how = f"median of {units.things(timed, 'step')}" if timed else without.how
    doubt = f"{how}, {units.duration_range(without.low, without.high)}" if without.value is not None else ""
    return join(
        [
            _tile("A step under the profiler", units.duration(diagnosis.wall_ns), "what the trace shows"),
            _tile("A step without it", units.duration(without.value), doubt or "the trace does not show it"),
            _tile("Speed of light", units.duration(diagnosis.speed_of_light_ns), _light(diagnosis)),
            _tile("Least time known", units.percent(diagnosis.coverage.device_time), _coverage(diagnosis)),
        ]
    )


def _predicted_tiles(diagnosis: Diagnosis) -> tuple[tuple[str, str, str], ...]:
    """The main numbers of a prediction, with the memory peak in place of the time under the profiler."""
    step = diagnosis.unprofiled_wall_ns
    interval = units.duration_range(step.low, step.high)
    fits = diagnosis.machines[0].fits if diagnosis.machines else None
    where = diagnosis.machine or "the machine"
    memory = {True: f"fits {where}", False: f"too big for {where}", None: "whether it fits is unknown"}[fits]
    return (
        ("A step, predicted", units.duration(step.value), known(interval)),
        ("Memory peak", units.bytes_(diagnosis.memory_peak_bytes), memory),
        ("Speed of light", units.duration(diagnosis.speed_of_light_ns), _light(diagnosis)),
        ("Least time known", units.percent(diagnosis.coverage.device_time), _coverage(diagnosis)),
    )


def _tile(name: str, value: str, note: str) -> Markup:
    missing = value == units.UNKNOWN_TEXT
    number = el("dd", known(value), class_="number missing" if missing else "number")
    return el("div", el("dt", name), number, el("dd", note, class_="note"))


def _light(diagnosis: Diagnosis) -> str:
    step = diagnosis.unprofiled_wall_ns.value or diagnosis.wall_ns
    if diagnosis.speed_of_light_ns is None:
        return (
            "no ceilings are known for this device"
            if diagnosis.machine is None
            else "too little has a known least time"
        )
    if not step:
        return "the step's time is unknown"
    most = "at most " if diagnosis.lower_bounds else ""
    return f"{most}{units.percent(diagnosis.speed_of_light_ns / step)} of the step"


def _coverage(diagnosis: Diagnosis) -> str:
    if diagnosis.coverage.device_time is None:
        return "there is no device work"
    return f"{known(units.percent(diagnosis.coverage.calls))} of the launches"


def step_budget(diagnosis: Diagnosis) -> Markup:
    """The budget as a chart and as a table, and the speed of light."""
    rows = budget.rows(diagnosis.budget)
    if not rows:
        body: list[Markup] = [el("p", "Where the time goes is unknown: no step could be analysed.", class_="empty")]
    else:
        body = [
            el("div", id="budget-chart", class_="chart", role="img", aria_label="The budget as one stacked bar"),
            el("div", _table(rows), class_="budget-table"),
        ]
    which = "under" if diagnosis.unprofiled_wall_ns.value is None else "without"
    lead = f"Every nanosecond of a step {which} the profiler, in exactly one line."
    if predicted(diagnosis):
        on = f" on {diagnosis.machine}" if diagnosis.machine else ""
        lead = f"Every nanosecond of the predicted step{on}, in exactly one line."
    light = el("p", terminal.light(diagnosis), class_="after")
    return section("budget", "Where the time goes", body, light, lead=lead)


def _table(rows: list[budget.BudgetRow]) -> Markup:
    largest = max(row.share for row in rows) or 1.0
    lines = []
    for index, row in enumerate(rows):
        colour = row_colour(row, index)
        lines.append(
            el(
                "tr",
                el("th", el("i", class_=f"swatch c-{colour}"), _name(row), scope="row"),
                el("td", bar(row.share / largest, colour), class_="meter"),
                el("td", units.duration(row.ns), class_="n"),
                el("td", units.percent(row.share), class_="n"),
                data_i=index,
            )
        )
    head = el("tr", *(_head(name) for name in ("line", "", "time", "share")))
    return el("table", el("caption", "The budget of one step", class_="hidden"), el("thead", head), el("tbody", lines))


def _head(name: str) -> Markup:
    return el("th", name, scope="col", class_="n" if name in ("time", "share") else None) if name else el("td")


def _name(row: budget.BudgetRow) -> Markup:
    group = words.BUDGET_GROUPS.get(row.kind, row.kind)
    return join([f"{group} ", el("span", row.label, class_="sub")])


def row_colour(row: budget.BudgetRow, index: int) -> str:
    """The colour class of a budget row, by its kind and its cause."""
    if row.kind == "below_roof":
        side = row.label.partition(" ")[0]
        return f"below-{side}" if side in ("compute", "memory") else "unpriced"
    if row.kind == "overhead":
        return cause_colour(row.label)
    return row.kind if row.kind in COLOURED_KINDS else "unpriced"


CAUSE_COLOURS = {
    "launching": "launching",
    "Python between ops": "python",
    "synchronisation": "sync",
    "input data": "input",
    "allocator": "allocator",
    "garbage collection": "gc",
    "compiling": "compile",
    "host computation": "host",
}
"""Label of a cause -> its colour class; others are drawn as unexplained."""


def cause_colour(label: str) -> str:
    """The colour class of a cause of overhead, by its label in the budget."""
    return CAUSE_COLOURS.get(label, "unexplained")
