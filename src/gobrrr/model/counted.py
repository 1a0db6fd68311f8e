"""The work of one step: FLOPs and bytes, three definitions of each, and what could not be counted."""

from __future__ import annotations

import msgspec

from gobrrr.model import show
from gobrrr.model.work import Count


class CountedOp(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of call in a step. FLOPs and bytes are the sum over its calls; None: not known."""

    op: str
    shapes: str
    family: str
    count: Count
    calls: int
    flop: float | None
    bytes: float | None
    note: str = ""


class StepCounts(msgspec.Struct, frozen=True, kw_only=True):
    """A step's work (docs/design.md, section 5). Sums include what is known, and are None where nothing is;
    `unknown` says what is missing.

    `flop_contraction`: the part of `flop_model` in matrix products, convolutions and attention, which is what FLOP
    counters usually count. `calls`: the number of calls by certainty. `unknown`: calls without a rule, by operation.
    """

    target: str
    flop_model: float | None
    flop_executed: float | None
    flop_hardware: float | None
    flop_contraction: float | None
    bytes_as_run: float | None
    bytes_fused: float | None
    bytes_compulsory: float | None
    peak_bytes: float
    calls: dict[Count, int]
    unknown: dict[str, int]
    ops: list[CountedOp]
    notes: list[str] = []

    def __str__(self) -> str:
        return show.as_text(self) or f"{self.target}: {self.flop_hardware} FLOP"
