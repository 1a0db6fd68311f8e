"""The what-if panel: treatments and machines to choose, and the step with each replayed combination of them.

The script offers only the combinations that were replayed. Without it, the panel is a table of all of them.
"""

from __future__ import annotations

from typing import Any

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis, MovedOp, WhatIf
from gobrrr.report import budget, what_if, words
from gobrrr.report.page.charts import drawable
from gobrrr.report.page.machine import ceiling
from gobrrr.report.page.machines import BOUNDS
from gobrrr.report.page.markup import Markup, code, el, folded
from gobrrr.report.page.verdict import row_colour
from gobrrr.report.text import sanitise

ARROW = "\N{RIGHTWARDS ARROW}"
COMBINATION_HEADS = ("combination", "step", "saves", "bound", "then, and what it assumes")
"""Heads of the table of combinations."""


def offers(diagnosis: Diagnosis) -> bool:
    """Whether there is a choice: the step as it is, and at least one combination."""
    return len(diagnosis.what_ifs) > 1


def panel(diagnosis: Diagnosis) -> Markup | None:
    """The section; None if there is nothing to choose."""
    if not offers(diagnosis):
        return None
    lead = (
        "The step with a combination of treatments and a machine. Each combination on offer was replayed: the step's "
        "graph was changed and run by the model of host and device. Combinations that were not replayed are not "
        "offered; savings of single treatments do not add up."
    )
    told = f"treatments and machines together: {len(diagnosis.what_ifs)} replayed combinations"
    asked = any(entry.asked for entry in diagnosis.what_ifs)
    return folded(
        "what-if", "What if", told, _controls(diagnosis), _answer(diagnosis), _all(diagnosis), lead=lead, opened=asked
    )


def names_of(diagnosis: Diagnosis) -> list[str]:
    """The treatments in the combinations, in the order of their first use."""
    return list(dict.fromkeys(name for entry in diagnosis.what_ifs for name in entry.treatments))


def machines_of(diagnosis: Diagnosis) -> list[str | None]:
    """The machines in the combinations; None, the step's own, comes first."""
    others = dict.fromkeys(entry.machine for entry in diagnosis.what_ifs if entry.machine is not None)
    return [None, *others]


def _controls(diagnosis: Diagnosis) -> Markup:
    toggles = [_toggle(diagnosis, index, name) for index, name in enumerate(names_of(diagnosis))]
    group = el("div", toggles, class_="toggles", role="group", aria_label="Treatments") if toggles else None
    machines = machines_of(diagnosis)
    reset = el("button", "As it is", type="button", id="what-if-reset")
    choice = [_machine(diagnosis, index, name) for index, name in enumerate(machines)]
    radios = el("div", choice, class_="choices", role="radiogroup", aria_label="Machine") if len(machines) > 1 else None
    return el("div", group, el("div", radios, reset, class_="second"), class_="needs-script what-if-controls")


def _toggle(diagnosis: Diagnosis, index: int, name: str) -> Markup:
    how = what_if.meaning(diagnosis, name)
    now = what_if.as_it_is(diagnosis)
    alone = next((entry for entry in diagnosis.what_ifs if entry.treatments == [name] and entry.machine is None), None)
    told = f"alone {what_if.saving(now, alone)}" if alone is not None else "not replayed alone"
    return el(
        "button",
        el("i", class_="tick", aria_hidden="true"),
        el("span", el("b", name), " ", el("span", told, class_="sub"), class_="label"),
        el("span", code(how), class_="how") if how else None,
        el("span", class_="why", hidden=True),
        type="button",
        class_="toggle",
        aria_pressed="false",
        data_t=index,
    )


def _machine(diagnosis: Diagnosis, index: int, name: str | None) -> Markup:
    radio = el("input", type="radio", name="what-if-machine", value=index, checked=index == 0)
    shown = name if name is not None else "this machine"
    own = el("span", f" {_own(diagnosis)}", class_="sub") if name is None and _own(diagnosis) else None
    return el("label", radio, el("span", shown, own, el("span", class_="why", hidden=True)))


def _own(diagnosis: Diagnosis) -> str:
    """The name of the step's own machine; "" if it is not known."""
    return diagnosis.machine or diagnosis.device or ""


def _answer(diagnosis: Diagnosis) -> Markup:
    """The elements that the script fills: the answer in words, bars, budget and roofline."""
    chart = el("div", id="what-if-roofline", class_="chart", role="img", tabindex="0")
    roofline = el(
        "div",
        el("h3", "Its roofline"),
        chart,
        el("p", id="what-if-moved", class_="after"),
        class_="what-if-roofs",
    )
    lines = el("table", el("caption", "The budget of the step, before and after", class_="hidden"), id="what-if-lines")
    return el(
        "div",
        el("div", id="what-if-answer", role="status", aria_live="polite"),
        el("div", id="what-if-bars"),
        el("div", el("div", el("h3", "Its budget"), lines, el("div", id="what-if-assumes")),
           roofline if _has_points(diagnosis) else None, class_="two"),
        class_="needs-script what-if-answer",
    )  # fmt: skip


def _has_points(diagnosis: Diagnosis) -> bool:
    return any(drawable(row) and row.bound in ("compute", "memory") for row in diagnosis.ops)


def _all(diagnosis: Diagnosis) -> Markup:
    """The table of all combinations; the script folds it."""
    now = what_if.as_it_is(diagnosis)
    numbers = ("step", "saves")
    heads = [el("th", name, scope="col", class_="n" if name in numbers else None) for name in COMBINATION_HEADS]
    head = el("thead", el("tr", heads, el("td", class_="needs-script")))
    rows = [_row(now, entry, index) for index, entry in enumerate(diagnosis.what_ifs)]
    caption = el("caption", "Every combination that was replayed", class_="hidden")
    table = el("table", caption, head, el("tbody", rows), id="what-if-table")
    label = el("summary", f"All {len(rows)} combinations that were replayed")
    return el("details", label, el("div", table, class_="scroll", tabindex="0"), open=True, class_="combinations")


def _row(now: WhatIf | None, entry: WhatIf, index: int) -> Markup:
    first = entry is now
    colour = BOUNDS.get(entry.regime, entry.regime)
    interval = units.duration_range(entry.low_ns, entry.high_ns)
    told = what_if.told(entry)
    saved = "" if first else what_if.saving(now, entry)
    spread = None if first else el("span", what_if.between(entry.saving_ns), class_="sub")
    more = what_if.work(entry)
    return el(
        "tr",
        el("th", what_if.title(entry), scope="row"),
        el("td", el("b", units.duration(entry.step_ns)), el("span", interval, class_="sub"), class_="n",
           data_label="step"),
        el("td", saved, spread, class_="n", data_label="saves"),
        el("td", el("i", class_=f"swatch c-{colour}"), what_if.bound(entry.regime), class_="bound", data_label="bound"),
        el("td", told, el("ul", [el("li", item) for item in [*entry.assumes, *filter(None, [more])]], class_="plain"),
           class_="assumes", data_label="then, and what it assumes"),
        el("td", el("button", "Show", type="button", class_="show", data_entry=index), class_="needs-script"),
    )  # fmt: skip


def what_if_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The data of the script: formatted texts, and the numbers of bars and points."""
    names, machines = names_of(diagnosis), machines_of(diagnosis)
    lines, moves = _Lines(diagnosis), _Moves(diagnosis)
    now = what_if.as_it_is(diagnosis)
    entries = [_entry(now, entry, names, machines, lines, moves) for entry in diagnosis.what_ifs]
    return {
        "treatments": [sanitise(name) for name in names],
        "machines": [
            {"name": sanitise(name or _own(diagnosis)), "roofs": _roofs(diagnosis, name)} for name in machines
        ],
        "lines": lines.kinds(),
        "moves": moves.found,
        "entries": [{**entry, "ns": lines.filled(entry["ns"])} for entry in entries],
    }


def _entry(
    now: WhatIf | None,
    entry: WhatIf,
    names: list[str],
    machines: list[str | None],
    lines: _Lines,
    moves: _Moves,
) -> dict[str, Any]:
    return {
        "treatments": [names.index(name) for name in dict.fromkeys(entry.treatments)],
        "machine": machines.index(entry.machine),
        "step": entry.step_ns,
        "low": entry.low_ns,
        "high": entry.high_ns,
        "saving": entry.expected_ns,
        "title": what_if.title(entry),
        "times": what_if.times(now, entry, ARROW),
        "saves": what_if.saving(now, entry),
        "between": what_if.between(entry.saving_ns),
        "bound": what_if.bound(entry.regime),
        "colour": BOUNDS.get(entry.regime, entry.regime),
        "then": what_if.told(entry),
        "does": what_if.work(entry),
        "work": entry.work,
        "assumes": [sanitise(item) for item in entry.assumes],
        "ns": lines(entry),
        "asked": entry.asked,
        "moved": [index for item in entry.ops if (index := moves(item)) is not None],
    }


class _Lines:
    """The lines of all budgets, each once, in the order of their kinds; called with an entry, its times by line."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self._cpu = diagnosis.device_model.on_host
        self._rows: dict[tuple[str, str], budget.BudgetRow] = {}

    def __call__(self, entry: WhatIf) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for item in entry.lines:
            row = budget.BudgetRow(item.line, words.label(item, cpu=self._cpu), item.ns, item.share)
            key = (row.kind, row.label)
            self._rows.setdefault(key, row)
            found[key] = found.get(key, 0.0) + item.ns
        return found

    def _order(self) -> list[tuple[str, str]]:
        return sorted(self._rows, key=lambda key: budget.KIND_ORDER.index(key[0]))

    def kinds(self) -> list[dict[str, str]]:
        """Group, label and colour of each line."""
        return [
            {"group": words.BUDGET_GROUPS[kind], "label": label, "colour": row_colour(self._rows[kind, label], 0)}
            for kind, label in self._order()
        ]

    def filled(self, found: dict[tuple[str, str], float]) -> list[float]:
        """The times of one budget, in the order of `kinds`."""
        return [_short(found.get(key, 0.0)) for key in self._order()]


class _Moves:
    """The points that combinations move, each once: (row of ops, its time, its bytes)."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.found: list[tuple[int, float, float | None]] = []
        self._ops = diagnosis.ops
        self._places: dict[tuple[int, float, float | None], int] = {}

    def __call__(self, item: MovedOp) -> int | None:
        """The index of the point in `found`; None if the row has no point."""
        if not (0 <= item.op < len(self._ops) and drawable(self._ops[item.op])):
            return None
        key = (item.op, _short(item.ns), None if item.bytes is None else _short(item.bytes))
        if key not in self._places:
            self._places[key] = len(self.found)
            self.found.append(key)
        return self._places[key]


def _short(value: float) -> float:
    """A number rounded to 7 digits, to keep the page short."""
    return float(f"{value:.7g}")


def _roofs(diagnosis: Diagnosis, machine: str | None) -> list[dict[str, Any]] | None:
    """The roofs of another machine; None for the step's own, which the page has already."""
    if machine is None:
        return None
    return [
        {"name": sanitise(roof.name), "kind": roof.kind, "value": roof.value, "text": ceiling(roof),
         "provenance": sanitise(roof.provenance)}
        for roof in diagnosis.what_if_roofs.get(machine, [])
    ]  # fmt: skip
