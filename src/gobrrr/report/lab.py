"""The lab on the screen and as a page: each experiment's tables and plots, each claim beside what holds here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gobrrr.model.experiment import Cell, Column, Experiment, Flame, Judgement, LabReport, Table
from gobrrr.model.measured import Environment, Quantity
from gobrrr.report.layout import Line, Page, fold
from gobrrr.report.plot import sketch
from gobrrr.report.svg import draw
from gobrrr.report.text import sanitise
from gobrrr.report.values import spread, text

STYLES = {"holds": "bold green", "does not hold": "bold red", "can't tell": "bold yellow"}
GAP = 2
PLOT_ROWS = 10
FLAME_LABEL = 30


def lines(report: LabReport, page: Page) -> list[Line]:
    """All experiments, then the claims in one table."""
    out: list[Line] = [*_head(report.environment, page), []]
    for one in report.experiments:
        out += [*experiment(one, page), []]
    return out + _summary(report, page) if len(report.experiments) > 1 else out[:-1]


def _head(env: Environment, page: Page) -> list[Line]:
    parts = [f"torch {env.torch}", f"compiler {env.compiler}" if env.compiler else "no fusing compiler", env.date]
    first: Line = [(f" {sanitise(env.device_name)}", "bold")]
    return [first, *page.wrapped(sanitise(page.joint.join(parts)), first=" ", style="dim")]


def experiment(one: Experiment, page: Page) -> list[Line]:
    """One experiment: title, tables, plots, flame graphs, claims, notes."""
    out: list[Line] = [
        [(f" {one.name}: {sanitise(one.title)}", "bold"), (f"{page.joint}{one.duration_s:.1f} s", "dim")]
    ]
    if one.status == "skipped":
        return [*out, *page.wrapped(f"skipped: {sanitise(one.why)}", first="   ")]
    for each in one.tables:
        out += [[], *table(each, page)]
    for plot in one.plots:
        out += [[], *([(" " + line, "")] for line in sketch(plot, page.width - 2, PLOT_ROWS))]
    for graph in one.flames:
        out += [[], *flame(graph, page)]
    for judgement in one.judgements:
        out += [[], *claim(judgement, page)]
    notes = [
        line for note in one.notes for line in page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    ]
    return [*out, [], *notes] if notes else out


def claim(judgement: Judgement, page: Page) -> list[Line]:
    """The quote, the verdict with the numbers here, and the rule behind it."""
    quote = page.wrapped(f'"{sanitise(judgement.claim.quote)}"', first=f" {judgement.claim.number:<4}")
    verdict = judgement.verdict.upper()
    here = page.wrapped(sanitise(judgement.here), first=f"     {verdict}: ")
    here[0] = [("     ", ""), (f"{verdict}: ", STYLES[judgement.verdict]), (here[0][1][0], "")]
    return [*quote, *here, *page.wrapped(f"holds when {judgement.rule}", first="     ", style="dim")]


def table(one: Table, page: Page) -> list[Line]:
    """A table as wide as its cells; spreads over 10 % stand behind their values."""
    heads = [column.name for column in one.columns]
    rows = [[_cell(cell, column) for cell, column in zip(row, one.columns, strict=True)] for row in one.rows]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    left = [_left(one, at) for at in range(len(heads))]
    title: Line = [(f" {sanitise(one.title)}", "bold")]
    cells: list[Line] = [[(_row(heads, widths, left), "dim")], *([(_row(row, widths, left), "")] for row in rows)]
    return fold([title, *cells], page.width)


def _left(one: Table, at: int) -> bool:
    return all(isinstance(row[at], str) for row in one.rows)


def _row(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    parts = [
        f"{cell:<{width}}" if at_left else f"{cell:>{width}}"
        for cell, width, at_left in zip(cells, widths, left, strict=True)
    ]
    return ("   " + (" " * GAP).join(parts)).rstrip()


WIDE = 0.1
"""A spread above this share of the median is printed with the value."""


def _cell(cell: Cell, column: Column) -> str:
    if isinstance(cell, str):
        return sanitise(cell)
    shown = text(cell, column.unit)
    wide = isinstance(cell, Quantity) and cell.spread > WIDE
    return f"{shown} ~{spread(cell)}" if wide else shown


def flame(one: Flame, page: Page) -> list[Line]:
    """Each box as a bar under the one that it stands in, with its share of the whole."""
    whole = max((frame.start_s + frame.duration_s for frame in one.frames), default=0.0)
    room = max(10, page.width - FLAME_LABEL - 15)
    out: list[Line] = [[(f" {sanitise(one.title)}", "bold")]]
    for frame in sorted(one.frames, key=lambda each: (each.depth, each.start_s)):
        share = frame.duration_s / whole if whole else 0.0
        name = page.cut(sanitise(frame.name), FLAME_LABEL)
        out.append([(f"   {name:<{FLAME_LABEL}}{text(frame.duration_s, 's'):>10} {page.bar(share, room)}", "")])
    return out


def _summary(report: LabReport, page: Page) -> list[Line]:
    """Every claim on a line of its own."""
    out: list[Line] = [[(" The article's claims here", "bold")]]
    for one in report.experiments:
        for each in one.judgements:
            lead = f"   {each.claim.number:<4}"
            first, *rest = page.wrapped(each.claim.quote, first=f"{lead}{each.verdict:<15}")
            out += [[(lead, ""), (f"{each.verdict:<15}", STYLES[each.verdict]), first[1]], *rest]
        if one.status == "skipped":
            out += page.wrapped(f"{one.name}: skipped: {sanitise(one.why)}", first="   ", style="dim")
    return out


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}caption{text-align:left;font-weight:600}
td,th{padding:.15rem .8rem;text-align:right}td:first-child,th:first-child{text-align:left}
tr{border-bottom:1px solid #ddd}blockquote{margin:1rem 0;padding-left:1rem;border-left:4px solid #bbb}
.holds{border-color:#009e73}.fails{border-color:#d55e00}.unsure{border-color:#e69f00}svg{max-width:100%}.dim{color:#666}
.box{background:#e69f00;white-space:nowrap;overflow:visible;margin:1px 0;padding:0 .3rem;box-sizing:border-box}"""
MARKS = {"holds": "holds", "does not hold": "fails", "can't tell": "unsure"}


def page_of(report: LabReport) -> str:
    """One page of all experiments: no script, nothing loaded from elsewhere."""
    env = report.environment
    about = ", ".join(filter(None, [env.device_name, f"torch {env.torch}", env.compiler, env.date]))
    body = "\n".join(_section(one) for one in report.experiments)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>The article, re-measured</title><style>{STYLE}</style></head>\n"
        f"<body><h1>The article, re-measured</h1>\n<p>{_safe(about)}</p>\n{body}\n</body></html>\n"
    )


def _section(one: Experiment) -> str:
    head = f"<h2>{_safe(one.name)}: {_safe(one.title)}</h2>"
    if one.status == "skipped":
        return f"{head}\n<p>skipped: {_safe(one.why)}</p>"
    parts = [*map(_html_table, one.tables), *map(draw, one.plots), *map(_html_flame, one.flames)]
    parts += [_html_claim(each) for each in one.judgements]
    parts += [f'<p class="dim">{_safe(note)}</p>' for note in one.notes]
    return "\n".join([head, *parts])


def _html_table(one: Table) -> str:
    heads = "".join(f"<th>{_safe(column.name)}</th>" for column in one.columns)
    rows = [
        "".join(f"<td>{_safe(_cell(cell, column))}</td>" for cell, column in zip(row, one.columns, strict=True))
        for row in one.rows
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><caption>{_safe(one.title)}</caption><tr>{heads}</tr>{body}</table>"


def _html_flame(one: Flame) -> str:
    whole = max((frame.duration_s for frame in one.frames), default=0.0) or 1.0
    boxes = [
        f'<div class="box" style="width:{max(0.2, 100 * frame.duration_s / whole):.2f}%">{_safe(frame.name)}: '
        f"{_safe(text(frame.duration_s, 's'))}</div>"
        for frame in sorted(one.frames, key=lambda each: each.depth)
    ]
    return f"<h3>{_safe(one.title)}</h3>\n" + "\n".join(boxes)


def _html_claim(judgement: Judgement) -> str:
    return (
        f'<blockquote class="{MARKS[judgement.verdict]}"><p>{_safe(judgement.claim.number)} '
        f'"{_safe(judgement.claim.quote)}" (<a href="{escape(judgement.claim.source, quote=True)}">source</a>)</p>'
        f"<p><b>{_safe(judgement.verdict)}</b>: {_safe(judgement.here)}</p>"
        f'<p class="dim">holds when {_safe(judgement.rule)}</p></blockquote>'
    )


def _safe(value: str) -> str:
    return escape(sanitise(value))
