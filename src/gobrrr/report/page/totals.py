"""The totals of one step: FLOPs and bytes three ways each, launches, waits, and the peak of memory."""

from __future__ import annotations

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis, Totals
from gobrrr.report.page.markup import Markup, bar, el, folded
from gobrrr.report.page.verdict import known

Row = tuple[str, str, float | None, str]
"""(name, meaning, amount, amount as text)."""


def totals(diagnosis: Diagnosis) -> Markup:
    """The section of the totals."""
    sums = diagnosis.totals
    lead = (
        "FLOPs (a multiply-add is 2) and bytes, three ways each. FLOPs beyond the model's are masked out or "
        "recomputed; bytes beyond the compulsory ones are what fusion could save."
    )
    tables = el("div", _table("arithmetic", _flops(sums), "compute"), _table("bytes moved", _bytes(sums), "memory"))
    flop, moved = units.flop(sums.flop), units.bytes_(sums.bytes_as_run)
    told = "" if units.UNKNOWN_TEXT in (flop, moved) else f"{flop}, {moved} moved"
    return folded("totals", "What a step does", told, tables, _others(diagnosis), lead=lead)


def _flops(sums: Totals) -> list[Row]:
    amounts = (
        ("model", "needed by the maths; a causal mask halves attention", sums.flop_model),
        ("executed", "done by the kernels, without recomputation", sums.flop_executed),
        ("hardware", "with recomputation: checkpoints, attention backward", sums.flop),
    )
    return [(name, means, value, units.flop(value)) for name, means, value in amounts]


def _bytes(sums: Totals) -> list[Row]:
    amounts = (
        ("compulsory", "inputs and outputs of the largest fusible regions", sums.bytes_compulsory),
        ("fused", "as run, with pointwise chains fused by a compiler", sums.bytes_fused),
        ("as run", "each operation's inputs and outputs", sums.bytes_as_run),
    )
    return [(name, means, value, units.bytes_(value)) for name, means, value in amounts]


def _table(caption: str, rows: list[Row], colour: str) -> Markup:
    largest = max((value or 0.0 for _, _, value, _ in rows), default=0.0)
    lines = [
        el(
            "tr",
            el("th", name, el("span", means, class_="sub"), scope="row"),
            el("td", bar(value / largest, colour) if value is not None and largest > 0 else None, class_="meter"),
            el("td", known(amount), class_="n"),
        )
        for name, means, value, amount in rows
    ]
    return el("table", el("caption", caption), el("tbody", lines))


def _others(diagnosis: Diagnosis) -> Markup:
    sums, peak = diagnosis.totals, diagnosis.memory_peak_bytes
    memory = [("memory peak of its tensors", units.bytes_(peak))] if peak is not None else []
    pairs = (
        ("in matrix products, convolutions, attention", units.flop(sums.flop_contraction)),
        ("FLOP a byte as run", _ratio(sums.flop, sums.bytes_as_run)),
        *memory,
        ("launches", units.count(sums.launches)),
        ("waits for the device", units.count(sums.syncs)),
    )
    return el("dl", [el("div", el("dt", name), el("dd", known(value))) for name, value in pairs], class_="sums")


def _ratio(part: float | None, whole: float | None) -> str:
    """A ratio with three digits."""
    return units.UNKNOWN_TEXT if part is None or not whole else units.count(part / whole)
