"""The lab on the terminal and as an HTML page: each experiment's tables and plots, and each claim with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gobrrr.model.experiment import Cell, Experiment, Flame, Judgement, LabColumn, LabReport, LabTable
from gobrrr.model.measured import Environment, Quantity
from gobrrr.report.layout import Line, Page, fold
from gobrrr.report.plot import sketch
from gobrrr.report.svg import draw
from gobrrr.report.text import sanitise
from gobrrr.report.values import spread, text

VERDICT_STYLES = {"holds": "bold green", "does not hold": "bold red", "can't tell": "bold yellow"}
"""Verdict -> its style."""

COLUMN_GAP = 2
PLOT_ROWS = 10
FLAME_LABEL = 30
"""Cells between columns, rows of a plot, cells of a flame graph's names."""


def lines(report: LabReport, page: Page) -> list[Line]:
    """All experiments, then the claims in one table."""
    out: list[Line] = [*_head(report.environment, page), []]
    for ran in report.experiments:
        out += [*experiment(ran, page), []]
    return out + _summary(report, page) if len(report.experiments) > 1 else out[:-1]


def _head(env: Environment, page: Page) -> list[Line]:
    parts = [f"torch {env.torch}", f"compiler {env.compiler}" if env.compiler else "no fusing compiler", env.date]
    first: Line = [(f" {sanitise(env.device_name)}", "bold")]
    return [first, *page.wrapped(sanitise(page.joint.join(parts)), first=" ", style="dim")]


def experiment(shown: Experiment, page: Page) -> list[Line]:
    """One experiment: title, tables, plots, flame graphs, claims, notes."""
    out: list[Line] = [
        [(f" {shown.name}: {sanitise(shown.title)}", "bold"), (f"{page.joint}{shown.duration_s:.1f} s", "dim")]
    ]
    if shown.status == "skipped":
        return [*out, *page.wrapped(f"skipped: {sanitise(shown.why)}", first="   ")]
    for rows in shown.tables:
        out += [[], *table(rows, page)]
    for plot in shown.plots:
        out += [[], *([(" " + line, "")] for line in sketch(plot, page.width - 2, PLOT_ROWS))]
    for graph in shown.flames:
        out += [[], *flame(graph, page)]
    for judgement in shown.judgements:
        out += [[], *claim(judgement, page)]
    notes = [
        line for note in shown.notes for line in page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    ]
    return [*out, [], *notes] if notes else out


def claim(judgement: Judgement, page: Page) -> list[Line]:
    """The quote, the verdict with this machine's numbers, and the rule behind it."""
    quote = page.wrapped(f'"{sanitise(judgement.claim.quote)}"', first=f" {judgement.claim.number:<4}")
    verdict = judgement.verdict.upper()
    here = page.wrapped(sanitise(judgement.here), first=f"     {verdict}: ")
    here[0] = [("     ", ""), (f"{verdict}: ", VERDICT_STYLES[judgement.verdict]), (here[0][1][0], "")]
    return [*quote, *here, *page.wrapped(f"holds when {judgement.rule}", first="     ", style="dim")]


def table(shown: LabTable, page: Page) -> list[Line]:
    """A table as wide as its cells; a spread over 10 % is printed after its value."""
    heads = [column.name for column in shown.columns]
    rows = [[_cell(cell, column) for cell, column in zip(row, shown.columns, strict=True)] for row in shown.rows]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    left = [_left(shown, at) for at in range(len(heads))]
    title: Line = [(f" {sanitise(shown.title)}", "bold")]
    cells: list[Line] = [[(_row(heads, widths, left), "dim")], *([(_row(row, widths, left), "")] for row in rows)]
    return fold([title, *cells], page.width)


def _left(shown: LabTable, at: int) -> bool:
    return all(isinstance(row[at], str) for row in shown.rows)


def _row(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    parts = [
        f"{cell:<{width}}" if at_left else f"{cell:>{width}}"
        for cell, width, at_left in zip(cells, widths, left, strict=True)
    ]
    return ("   " + (" " * COLUMN_GAP).join(parts)).rstrip()


WIDE_CELL_SPREAD = 0.1
"""A spread above this share of the median is printed with the value; chosen."""


def _cell(cell: Cell, column: LabColumn) -> str:
    if isinstance(cell, str):
        return sanitise(cell)
    shown = text(cell, column.unit)
    wide = isinstance(cell, Quantity) and cell.spread > WIDE_CELL_SPREAD
    return f"{shown} ~{spread(cell)}" if wide else shown


def flame(graph: Flame, page: Page) -> list[Line]:
    """Each frame as a bar of its share, outer frames first."""
    whole = max((frame.start_s + frame.duration_s for frame in graph.frames), default=0.0)
    room = max(10, page.width - FLAME_LABEL - 15)
    out: list[Line] = [[(f" {sanitise(graph.title)}", "bold")]]
    for frame in sorted(graph.frames, key=lambda each: (each.depth, each.start_s)):
        share = frame.duration_s / whole if whole else 0.0
        name = page.cut(sanitise(frame.name), FLAME_LABEL)
        out.append([(f"   {name:<{FLAME_LABEL}}{text(frame.duration_s, 's'):>10} {page.bar(share, room)}", "")])
    return out


def _summary(report: LabReport, page: Page) -> list[Line]:
    """All claims, one per line."""
    out: list[Line] = [[(" The article's claims here", "bold")]]
    for ran in report.experiments:
        for judged in ran.judgements:
            lead = f"   {judged.claim.number:<4}"
            first, *rest = page.wrapped(judged.claim.quote, first=f"{lead}{judged.verdict:<15}")
            out += [[(lead, ""), (f"{judged.verdict:<15}", VERDICT_STYLES[judged.verdict]), first[1]], *rest]
        if ran.status == "skipped":
            out += page.wrapped(f"{ran.name}: skipped: {sanitise(ran.why)}", first="   ", style="dim")
    return out


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}caption{text-align:left;font-weight:600}
td,th{padding:.15rem .8rem;text-align:right}td:first-child,th:first-child{text-align:left}
tr{border-bottom:1px solid #ddd}blockquote{margin:1rem 0;padding-left:1rem;border-left:4px solid #bbb}
.holds{border-color:#009e73}.fails{border-color:#d55e00}.unsure{border-color:#e69f00}svg{max-width:100%}.dim{color:#666}
.box{background:#e69f00;white-space:nowrap;overflow:visible;margin:1px 0;padding:0 .3rem;box-sizing:border-box}"""
VERDICT_CLASSES = {"holds": "holds", "does not hold": "fails", "can't tell": "unsure"}
"""Verdict -> its class in the page."""


def page_of(report: LabReport) -> str:
    """One HTML page of all experiments, without scripts; it loads nothing."""
    env = report.environment
    about = ", ".join(filter(None, [env.device_name, f"torch {env.torch}", env.compiler, env.date]))
    body = "\n".join(_section(ran) for ran in report.experiments)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>The article, re-measured</title><style>{STYLE}</style></head>\n"
        f"<body><h1>The article, re-measured</h1>\n<p>{_safe(about)}</p>\n{body}\n</body></html>\n"
    )


def _section(shown: Experiment) -> str:
    head = f"<h2>{_safe(shown.name)}: {_safe(shown.title)}</h2>"
    if shown.status == "skipped":
        return f"{head}\n<p>skipped: {_safe(shown.why)}</p>"
    parts = [*map(_html_table, shown.tables), *map(draw, shown.plots), *map(_html_flame, shown.flames)]
    parts += [_html_claim(each) for each in shown.judgements]
    parts += [f'<p class="dim">{_safe(note)}</p>' for note in shown.notes]
    return "\n".join([head, *parts])


def _html_table(shown: LabTable) -> str:
    heads = "".join(f"<th>{_safe(column.name)}</th>" for column in shown.columns)
    rows = [
        "".join(f"<td>{_safe(_cell(cell, column))}</td>" for cell, column in zip(row, shown.columns, strict=True))
        for row in shown.rows
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><caption>{_safe(shown.title)}</caption><tr>{heads}</tr>{body}</table>"


def _html_flame(graph: Flame) -> str:
    whole = max((frame.duration_s for frame in graph.frames), default=0.0) or 1.0
    boxes = [
        f'<div class="box" style="width:{max(0.2, 100 * frame.duration_s / whole):.2f}%">{_safe(frame.name)}: '
        f"{_safe(text(frame.duration_s, 's'))}</div>"
        for frame in sorted(graph.frames, key=lambda each: each.depth)
    ]
    return f"<h3>{_safe(graph.title)}</h3>\n" + "\n".join(boxes)


def _html_claim(judgement: Judgement) -> str:
    return (
        f'<blockquote class="{VERDICT_CLASSES[judgement.verdict]}"><p>{_safe(judgement.claim.number)} '
        f'"{_safe(judgement.claim.quote)}" (<a href="{escape(judgement.claim.source, quote=True)}">source</a>)</p>'
        f"<p><b>{_safe(judgement.verdict)}</b>: {_safe(judgement.here)}</p>"
        f'<p class="dim">holds when {_safe(judgement.rule)}</p></blockquote>'
    )


def _safe(value: str) -> str:
    return escape(sanitise(value))
