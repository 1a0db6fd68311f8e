"""The budget on the terminal: one row per line, with time, share and bar; the rows add up to the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from gobrrr import units
from gobrrr.model.diagnosis import BudgetLine, Diagnosis
from gobrrr.report import words
from gobrrr.report.layout import Line, Page

GROUP_CELLS, BUDGET_LABEL_CELLS, SHARE_CELLS = 16, 20, 7
"""Widths of the columns, in terminal cells."""

MOST_BUDGET_ROWS, MOST_BAR_CELLS = 11, 40
"""Rows before the smaller lines are merged, and the longest bar; chosen."""

# Green: at a roof. Yellow: could be faster. Red: nothing useful runs. The terminal's own colour: not known.
ROW_STYLES = {
    "compute": "green",
    "memory": "green",
    "below_roof": "yellow",
    "unpriced": "dim",
    "communication": "red",
    "transfer": "red",
    "overhead": "red",
    "other": "dim",
}
KIND_ORDER = tuple(words.BUDGET_GROUPS)
"""Kinds of budget lines, as the table lists them."""


@dataclass(frozen=True)
class BudgetRow:
    """A row of the table; `kind` is the budget line's kind, or "other" for merged lines."""

    kind: str
    label: str
    ns: float
    share: float


def rows(budget: Sequence[BudgetLine], tiny: float = words.TINY_SHARE, *, cpu: bool = False) -> list[BudgetRow]:
    """The rows to show, in the order of the kinds, largest first within a kind.

    Lines with a share under `tiny` are merged into one row, "other"; the rows have the same sum as the lines.
    """
    timed = sorted((line for line in budget if line.ns), key=lambda line: (KIND_ORDER.index(line.line), -line.ns))
    small = [line for line in timed if line.share < tiny]
    small += sorted((line for line in timed if line.share >= tiny), key=lambda line: -line.ns)[MOST_BUDGET_ROWS:]
    if len(small) < 2:
        small = []
    shown = [
        BudgetRow(line.line, words.label(line, cpu=cpu), line.ns, line.share) for line in timed if line not in small
    ]
    if small:
        shown.append(
            BudgetRow("other", _names(small), sum(line.ns for line in small), sum(line.share for line in small))
        )
    return shown


def _names(lines: Sequence[BudgetLine]) -> str:
    names = ", ".join(
        words.label(line) if line.line == "overhead" else words.BUDGET_GROUPS[line.line] for line in lines
    )
    return names if cell_len(names) < BUDGET_LABEL_CELLS else f"{len(lines)} smaller lines"


def table(diagnosis: Diagnosis, page: Page, tiny: float = words.TINY_SHARE) -> list[Line]:
    """The budget's rows, or one sentence if there are none."""
    shown = rows(diagnosis.budget, tiny, cpu=diagnosis.device_model.on_host)
    if not shown:
        return [[("   Where the time goes is unknown: no step could be analysed.", "")]]
    largest = max(row.share for row in shown) or 1.0
    amounts = aligned([row.ns for row in shown])
    lines: list[Line] = []
    previous = ""
    for row, amount in zip(shown, amounts, strict=True):
        group = words.BUDGET_GROUPS.get(row.kind, row.kind)
        lines.append(_line(row, "" if group == previous else group, amount, largest, page))
        previous = group
    return lines


def _line(row: BudgetRow, group: str, amount: str, largest: float, page: Page) -> Line:
    share = units.percent(row.share).rjust(SHARE_CELLS)
    label = set_cell_size(page.cut(row.label, BUDGET_LABEL_CELLS - 1), BUDGET_LABEL_CELLS)
    head = f"   {group:<{GROUP_CELLS}}{label}{amount} {share}  "
    return [
        (head, ""),
        (page.bar(row.share / largest, min(MOST_BAR_CELLS, page.width - cell_len(head) - 1)), ROW_STYLES[row.kind]),
    ]


_SCALES = ((1e10, 1e9, "s"), (1e6, 1e6, "ms"), (1e3, 1e3, "us"), (0.0, 1.0, "ns"))
"""(the least sum in ns, ns per unit, the unit)."""


def aligned(times_ns: Sequence[float]) -> list[str]:
    """Times in one unit with one number of decimals, so that the column can be added up by eye.

    The unit is that of the sum: a line of 3 us in a step of 30 ms is 0.0 ms here (and merged with others like it).
    """
    total = sum(times_ns)
    scale, unit = next((scale, unit) for least, scale, unit in _SCALES if total >= least)
    decimals = 2 if total / scale < 10 else 1
    texts = [f"{ns / scale:,.{decimals}f} {unit}" for ns in times_ns]
    width = max(9, *map(len, texts)) if texts else 0
    return [text.rjust(width) for text in texts]
