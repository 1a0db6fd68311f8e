"""The tables of operations and kernels, which the script sorts and filters; complete without it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis, KernelRow, OpRow
from gobrrr.report.page.markup import Markup, bar, el, folded, join, section, text
from gobrrr.report.page.verdict import known, predicted
from gobrrr.report.text import sanitise, short_name, shorten

OP_NAME_CHARACTERS, SHAPES_CELLS, KERNEL_CELLS = 48, 72, 64
"""Characters of an op's name, of its arguments, of a kernel's name; chosen to fit the columns."""


@dataclass(frozen=True)
class TableColumn:
    """A column: the key of the page's data that sorts it, and its heading; `wide` ones are hidden on narrow screens."""

    key: str
    title: str
    number: bool = True
    wide: bool = True


OP_COLUMNS = (
    TableColumn("name", "op", number=False, wide=False),
    TableColumn("shapes", "arguments", number=False),
    TableColumn("calls", "calls"),
    TableColumn("ns", "time", wide=False),
    TableColumn("floor", "floor"),
    TableColumn("reach", "of roof"),
    TableColumn("bound", "bound", number=False, wide=False),
    TableColumn("flop_s", "FLOP/s"),
    TableColumn("byte_s", "bytes/s"),
)
KERNEL_COLUMNS = (
    TableColumn("name", "kernel", number=False, wide=False),
    TableColumn("calls", "launches"),
    TableColumn("ns", "time", wide=False),
    TableColumn("each", "mean"),
)
ROWS_SHOWN = 12
"""Rows that are shown before "Show all"; chosen."""


def ops(diagnosis: Diagnosis) -> Markup:
    """The operations of a step."""
    if not diagnosis.ops:
        where = "is in the step" if predicted(diagnosis) else "was recorded"
        text = f"No device work {where}, so there is no table of operations."
        return section("ops", "Operations", el("p", text, class_="empty"))
    largest = max(row.ns for row in diagnosis.ops) or 1.0
    launched = kernels_of(diagnosis)
    rows = [_op(row, index, largest, launched[index]) for index, row in enumerate(diagnosis.ops)]
    kinds = "One row per kind of call (same op, arguments and kernels); the numbers are means per step."
    if predicted(diagnosis):
        kinds = "One row per kind of call (same op and arguments), with its predicted time."
    lead = (
        f"{kinds} Floor: the least time that the machine needs for the work. Of roof: floor over time; at 100 % the "
        "call reaches the roof."
    )
    body = (_controls("ops", OP_COLUMNS), _table("ops", OP_COLUMNS, rows, "Operations"))
    return folded("ops", "Operations", _kinds(rows, "kind of calls", "kinds of calls"), *body, lead=lead)


def _kinds(rows: list[Markup], singular: str, plural: str) -> str:
    return f"{len(rows):,} {singular if len(rows) == 1 else plural}"


def kernels_of(diagnosis: Diagnosis) -> list[list[str]]:
    """For each row of `ops`, the names of its kernels, most device time first, memory copies and sets last."""
    found: list[list[str]] = [[] for _ in diagnosis.ops]
    for kernel in sorted(diagnosis.kernels, key=lambda kernel: kernel.name.startswith("Mem")):
        for op in kernel.ops:
            if 0 <= op < len(found):
                found[op].append(kernel.name)
    return [names or ([row.kernel] if row.kernel else []) for names, row in zip(found, diagnosis.ops, strict=True)]


def _op(row: OpRow, index: int, largest: float, launched: list[str]) -> Markup:
    reach = row.floor_ns / row.ns if row.floor_ns is not None and row.ns > 0 else None
    bound = row.bound or "unpriced"
    cells = (
        units.count(row.calls),
        units.duration(row.ns),
        known(units.duration(row.floor_ns)),
        known(units.percent(reach)),
    )
    return el(
        "tr",
        _named(row.op, OP_NAME_CHARACTERS, row.shapes or row.family, _under(row, launched)),
        el("td", _arguments(row.shapes), class_="wide shapes"),
        el("td", cells[0], class_="n wide"),
        el("td", el("span", cells[1]), bar(row.ns / largest, bound), class_="n time"),
        el("td", cells[2], class_="n wide"),
        el("td", cells[3], class_="n wide"),
        el("td", el("i", class_=f"swatch c-{bound}"), row.bound or "unknown", class_="bound"),
        el("td", known(units.rate(_per_s(row.flop, row.ns), "FLOP")), class_="n wide"),
        el("td", known(units.rate(_per_s(row.bytes, row.ns))), class_="n wide"),
        data_i=index,
        class_="more" if index >= ROWS_SHOWN else None,
    )


def _named(name: str, cells: int, narrow: str, under: str | None = None) -> Markup:
    short = shorten(short_name(name), cells)
    return el(
        "th",
        el("button", el("code", breakable(short)), type="button", class_="name", aria_expanded="false"),
        el("span", shorten(sanitise(narrow), SHAPES_CELLS), class_="sub narrow") if narrow else None,
        el("span", under, class_="sub wide") if under else None,
        scope="row",
    )


def breakable(name: str) -> Markup:
    """A name that may be broken after an underscore or a namespace."""
    return Markup(text(name).replace("_", "_<wbr>").replace("::", "::<wbr>"))


def _under(row: OpRow, launched: list[str]) -> str | None:
    """The longest kernel of a call, and the number of others; None if the call is the kernel itself."""
    if not launched or launched[0] == row.op:
        return None
    others = f", {len(launched) - 1} more" if len(launched) > 1 else ""
    return shorten(short_name(launched[0]), KERNEL_CELLS - len(others)) + others


_ARGUMENTS = re.compile(r"\](?: \w+)?, ")
"""The end of a tensor's shape in a list of arguments."""
MOST_ARGUMENTS = 3
"""Arguments that are shown, one per line; chosen."""


def _arguments(shapes: str) -> Markup:
    """Shapes, one tensor per line; of a long list, the first ones and the number of others."""
    clean = sanitise(shapes)
    ends = [match.end() for match in _ARGUMENTS.finditer(clean)]
    parts = [clean[low:high].rstrip(", ") for low, high in zip([0, *ends], [*ends, len(clean)], strict=True)]
    shown = parts if len(parts) <= MOST_ARGUMENTS else parts[: MOST_ARGUMENTS - 1]
    lines = [el("code", shorten(part, SHAPES_CELLS)) for part in shown]
    more = el("span", f"and {len(parts) - len(shown)} more") if len(parts) > len(shown) else None
    return join([*lines, more])


def _per_s(amount: float | None, ns: float) -> float | None:
    return amount / ns * 1e9 if amount is not None and ns > 0 else None


def kernels(diagnosis: Diagnosis) -> Markup | None:
    """The kernels, copies and sets of a step by name; None if there are none."""
    if not diagnosis.kernels:
        return None
    largest = max(row.ns for row in diagnosis.kernels) or 1.0
    rows = [_kernel(row, index, largest) for index, row in enumerate(diagnosis.kernels)]
    lead = "All work on the device by name, with the operations that launch it; the numbers are means per step."
    if predicted(diagnosis):
        lead = "The expected launches by operation; which kernels a library would choose is not known."
    body = (_controls("kernels", KERNEL_COLUMNS), _table("kernels", KERNEL_COLUMNS, rows, "Kernels"))
    return folded("kernels", "Kernels", _kinds(rows, "name", "names"), *body, lead=lead)


def _kernel(row: KernelRow, index: int, largest: float) -> Markup:
    return el(
        "tr",
        _named(row.name, KERNEL_CELLS, ""),
        el("td", units.count(row.calls), class_="n wide"),
        el("td", el("span", units.duration(row.ns)), bar(row.ns / largest, "accent"), class_="n time"),
        el("td", units.duration(row.ns / row.calls if row.calls else None), class_="n wide"),
        data_i=index,
        class_="more" if index >= ROWS_SHOWN else None,
    )


def _controls(name: str, columns: tuple[TableColumn, ...]) -> Markup:
    """The filter, the sort order on narrow screens, and the number of rows shown; they need the script."""
    options = [el("option", column.title, value=column.key, selected=column.key == "ns") for column in columns]
    return el(
        "div",
        el(
            "label",
            el("span", "Filter", class_="hidden"),
            el("input", type="search", id=f"{name}-filter", placeholder="Filter by name, shape, module, bound",
               autocomplete="off", spellcheck="false"),
        ),
        el("label", "Sort by ", el("select", options, id=f"{name}-sort"), class_="narrow-only"),
        el("span", id=f"{name}-count", class_="count", role="status"),
        class_="controls needs-script",
    )  # fmt: skip


def _table(name: str, columns: tuple[TableColumn, ...], rows: list[Markup], caption: str) -> Markup:
    heads = [
        el(
            "th",
            el("button", column.title, type="button"),
            scope="col",
            data_key=column.key,
            aria_sort="descending" if column.key == "ns" else None,
            class_=" ".join(filter(None, ("n" if column.number else "", "wide" if column.wide else ""))) or None,
        )
        for column in columns
    ]
    table = el(
        "table",
        el("caption", f"{caption} of a step", class_="hidden"),
        el("thead", el("tr", heads)),
        el("tbody", rows),
        id=f"{name}-table",
        class_="data short",
    )
    more = el("button", f"Show all {len(rows):,}", type="button", id=f"{name}-all", class_="all needs-script")
    return el("div", table, more if len(rows) > ROWS_SHOWN else None)
