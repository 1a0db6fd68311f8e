"""Device time by nn.Module, as a tree that opens row by row."""

from __future__ import annotations

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis, ModuleRow
from gobrrr.report.page.markup import Markup, el, folded
from gobrrr.report.page.verdict import known, predicted

OPEN_DEPTH, MOST_MODULE_ROWS = 2, 2_000
"""Levels that are open at first, and the most rows on a page; chosen."""

NO_MODULE = "in no module"
"""The name of the row for operations outside any module."""


def modules(diagnosis: Diagnosis) -> Markup:
    """The tree: parents before their children, siblings by time."""
    if not diagnosis.modules:
        text = (
            "The time by module is unknown: the step calls no nn.Module."
            if predicted(diagnosis)
            else "The time by module is unknown: Python frames were not read. Record the trace with with_stack=True "
            "and read them with: gobrrr diagnose TRACE --stacks"
        )
        return folded("modules", "Modules", "unknown", el("p", text, class_="empty"))
    kept = ordered(diagnosis.modules)[:MOST_MODULE_ROWS]
    parents = {tuple(diagnosis.modules[index].path[:-1]) for index in kept if diagnosis.modules[index].path}
    whole = sum(row.ns for row in diagnosis.modules if len(row.path) < 2)
    rows = [
        _row(diagnosis.modules[index], index, tuple(diagnosis.modules[index].path) in parents, whole) for index in kept
    ]
    heads = (
        ("module", None),
        ("calls", "n wide"),
        ("time", "n"),
        ("share", "n wide"),
        ("compute, memory, other", "meter"),
    )
    head = el("tr", [el("th", name, scope="col", class_=kind) for name, kind in heads])
    table = el("table", el("thead", head), el("tbody", rows), id="tree", role="treegrid", aria_label="Modules")
    left = len(diagnosis.modules) - len(kept)
    note = el("p", f"{left:,} more modules are not shown.", class_="sub") if left else None
    lead = (
        f"The compute time of the device in a step ({units.duration(whole)}) by module, forward and backward, with its "
        "submodules; coloured by what bounds the operations."
    )
    count = units.things(sum(bool(row.path) for row in diagnosis.modules), "module")
    return folded("modules", "Modules", count, el("div", table, class_="tree"), note, lead=lead)


def ordered(rows: list[ModuleRow]) -> list[int]:
    """Indices of the rows, depth first, siblings by time; rows outside any module last."""
    children: dict[tuple[str, ...], list[int]] = {}
    paths = {tuple(row.path) for row in rows}
    for index, row in enumerate(rows):
        if not row.path:
            continue
        parent = tuple(row.path[:-1])
        children.setdefault(parent if parent in paths else (), []).append(index)
    order: list[int] = []
    stack = sorted(children.get((), []), key=lambda index: rows[index].ns)
    while stack:
        index = stack.pop()
        order.append(index)
        stack += sorted(children.get(tuple(rows[index].path), []), key=lambda child: rows[child].ns)
    return order + [index for index, row in enumerate(rows) if not row.path]


def label(row: ModuleRow) -> str:
    """The name of a row."""
    return row.path[-1] if row.path else NO_MODULE


def _row(row: ModuleRow, index: int, parent: bool, whole: float) -> Markup:
    level = max(len(row.path), 1)
    opened = level <= OPEN_DEPTH
    name = el("span", label(row), class_="label")
    twist = el("span", class_="twist", aria_hidden="true")
    sides = (("compute", row.compute_ns), ("memory", row.memory_ns), ("unpriced", row.other_ns))
    parts = [
        el("i", class_=f"c-{side}", style=f"width:{100 * ns / (whole or 1.0):.2f}%") for side, ns in sides if ns > 0
    ]
    told = ", ".join(
        f"{'other' if side == 'unpriced' else side} {units.percent(ns / row.ns)}"
        for side, ns in sides
        if ns > 0 and row.ns > 0
    )
    return el(
        "tr",
        el("th", el("span", twist, name, class_="cell"), scope="row", style=f"--level:{level - 1}"),
        el("td", units.count(row.calls), class_="n wide"),
        el("td", units.duration(row.ns), class_="n"),
        el("td", known(units.percent(row.ns / whole if whole else None)), class_="n wide"),
        el("td", el("span", *parts, class_="bar", aria_hidden="true"), el("span", told, class_="hidden"),
           class_="meter", title=told),
        data_i=index,
        aria_level=level,
        aria_expanded=("true" if opened else "false") if parent else None,
        hidden=level > OPEN_DEPTH + 1,
        tabindex=-1,
    )  # fmt: skip
