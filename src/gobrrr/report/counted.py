"""A count on one screen: FLOPs and bytes three ways, what is in them, and what could not be counted."""

from __future__ import annotations

from gobrrr import units
from gobrrr.model.counted import Counted, CountedOp
from gobrrr.report.layout import DEFAULT_WIDTH, Line, Page, fold, plain
from gobrrr.report.text import sanitise

LABEL, FIGURE = 12, 12
MOST_OPS = 8
MOST_UNKNOWN = 6

WORDS = (
    ("model", "flop_model", units.flop, "what the maths needs"),
    ("executed", "flop_executed", units.flop, "what the kernels do, each product once"),
    ("hardware", "flop_hardware", units.flop, "with what they compute again"),
    ("contractions", "flop_contraction", units.flop, "of the model's: what most counters count"),
    ("as run", "bytes_as_run", units.bytes_, "each call reads its inputs and writes its outputs"),
    ("fused", "bytes_fused", units.bytes_, "chains that a compiler joins, once"),
    ("compulsory", "bytes_compulsory", units.bytes_, "inputs and outputs of whole regions alone"),
    ("peak", "peak_bytes", units.bytes_, "held by tensors at once"),
)


def for_print(counted: Counted) -> str:
    """What `print` shows: plain, 80 columns."""
    return plain(lines(counted, Page(width=DEFAULT_WIDTH)))


def lines(counted: Counted, page: Page) -> list[Line]:
    """The page."""
    calls = sum(counted.calls.values())
    head: Line = [
        (f" {sanitise(counted.target) or 'a step'}", "bold"),
        (f"{page.joint}{units.things(calls, 'call')}", ""),
    ]
    found: list[Line] = [head, []]
    for word, field, text, meaning in WORDS:
        figure = text(getattr(counted, field))
        found.append([(f" {word:<{LABEL}} {figure:>{FIGURE}}  ", ""), (meaning, "dim")])
    found += [[], [(" The most FLOP", "bold")]]
    found += [line for op in counted.ops[:MOST_OPS] if op.flop for line in _op(op, page)]
    found += [[], *page.wrapped(certainty(counted), first=" ")]
    for note in counted.notes:
        found += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return fold(found, page.width)


def _op(op: CountedOp, page: Page) -> list[Line]:
    name = sanitise(f"{op.op.removeprefix('aten::')} {op.shapes}")
    return page.wrapped(name, first=f" {units.flop(op.flop):>{FIGURE}} {op.calls:>5}x  ")


def certainty(counted: Counted) -> str:
    """How sure the counts are, and which operations are missing from them."""
    known = ", ".join(f"{n:,} {word}" for word, n in sorted(counted.calls.items(), key=lambda item: -item[1]))
    if not counted.unknown:
        return f"Calls: {known}. None is unknown."
    names = sorted(counted.unknown.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{sanitise(name)} ({n})" for name, n in names[:MOST_UNKNOWN])
    more = f" and {len(names) - MOST_UNKNOWN} more" if len(names) > MOST_UNKNOWN else ""
    return f"Calls: {known}. Not counted, and in none of the sums: {shown}{more}. A rule is three lines: docs/rules.md."
