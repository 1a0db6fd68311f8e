"""The counts of a step on the terminal: FLOPs and bytes three ways, the largest operations, what is not counted."""

from __future__ import annotations

from gobrrr import units
from gobrrr.model.counted import CountedOp, StepCounts
from gobrrr.report.layout import DEFAULT_WIDTH, Line, Page, fold, plain
from gobrrr.report.text import sanitise

LABEL_COUNT_CELLS, COUNT_CELLS = 12, 12
"""Widths of the columns, in terminal cells."""

MOST_COUNTED_OPS = 8
MOST_UNCOUNTED_NAMES = 6
"""Operations with the most FLOPs, and names of uncounted operations, that are shown; chosen."""

COUNT_ROWS = (
    ("model", "flop_model", units.flop, "needed by the maths"),
    ("executed", "flop_executed", units.flop, "done by the kernels, without recomputation"),
    ("hardware", "flop_hardware", units.flop, "done by the kernels, with recomputation"),
    ("contractions", "flop_contraction", units.flop, "matmul, convolution, attention: as most counters do"),
    ("as run", "bytes_as_run", units.bytes_, "each call reads its inputs and writes its outputs"),
    ("fused", "bytes_fused", units.bytes_, "as run, with pointwise chains fused by a compiler"),
    ("compulsory", "bytes_compulsory", units.bytes_, "inputs and outputs of the largest fusible regions"),
    ("peak", "peak_bytes", units.bytes_, "most memory held by tensors at once"),
)
"""(label, field of the record, its formatter, meaning)."""


def for_print(counted: StepCounts) -> str:
    """The text that `print` shows: plain, 80 columns."""
    return plain(lines(counted, Page(width=DEFAULT_WIDTH)))


def lines(counted: StepCounts, page: Page) -> list[Line]:
    """The page of a count."""
    calls = sum(counted.calls.values())
    head: Line = [
        (f" {sanitise(counted.target) or 'a step'}", "bold"),
        (f"{page.joint}{units.things(calls, 'call')}", ""),
    ]
    found: list[Line] = [head, []]
    for word, field, text, meaning in COUNT_ROWS:
        figure = text(getattr(counted, field))
        found.append([(f" {word:<{LABEL_COUNT_CELLS}} {figure:>{COUNT_CELLS}}  ", ""), (meaning, "dim")])
    found += [[], [(" Operations with the most FLOP", "bold")]]
    found += [line for op in counted.ops[:MOST_COUNTED_OPS] if op.flop for line in _op(op, page)]
    found += [[], *page.wrapped(certainty(counted), first=" ")]
    for note in counted.notes:
        found += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return fold(found, page.width)


def _op(op: CountedOp, page: Page) -> list[Line]:
    name = sanitise(f"{op.op.removeprefix('aten::')} {op.shapes}")
    return page.wrapped(name, first=f" {units.flop(op.flop):>{COUNT_CELLS}} {op.calls:>5}x  ")


def certainty(counted: StepCounts) -> str:
    """How the calls were counted, and which operations were not."""
    known = ", ".join(f"{n:,} {word}" for word, n in sorted(counted.calls.items(), key=lambda item: -item[1]))
    if not counted.unknown:
        return f"Calls: {known}. All were counted."
    names = sorted(counted.unknown.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{sanitise(name)} ({n})" for name, n in names[:MOST_UNCOUNTED_NAMES])
    more = f" and {len(names) - MOST_UNCOUNTED_NAMES} more" if len(names) > MOST_UNCOUNTED_NAMES else ""
    uncounted = f"Not counted, and in none of the sums: {shown}{more}"
    return f"Calls: {known}. {uncounted}. To add a rule in three lines: docs/rules.md."
