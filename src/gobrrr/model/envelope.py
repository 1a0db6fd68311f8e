"""Back-of-the-envelope estimates: what an expression or an op costs on a machine, op by op and fused."""

from __future__ import annotations

from typing import Literal

import msgspec

from gobrrr.model import show
from gobrrr.model.work import Count, Link

FORMAT = 1
# History of the format:
# 1  first

Bound = Literal["compute", "memory", "communication", "transfer"]


class ComputeCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """A compute ceiling of the work. `ridge`: the arithmetic intensity from which it, not memory, is the bound."""

    name: str
    flop_per_s: float
    ridge: float | None


class EnvelopeKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel, launched `calls` times. Figures are per call; None: not known (`bytes`: read and written)."""

    name: str
    calls: int = 1
    count: Count = "exact"
    matrix_flop: float | None = None
    matrix_dtype: str | None = None
    vector_flop: float | None = None
    vector_dtype: str | None = None
    bytes: float | None = None
    link: Link = "memory"
    floor_ns: float | None = None
    bound: Bound | None = None
    roof: str = ""
    note: str = ""

    @property
    def flop(self) -> float:
        """FLOPs on both units."""
        return (self.matrix_flop or 0.0) + (self.vector_flop or 0.0)


class KernelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels that do the work, and their sums. `bound_share`: the part of the floor in kernels with `bound`."""

    kernels: tuple[EnvelopeKernel, ...]
    launches: int
    matrix_flop: float
    vector_flop: float
    bytes: float
    flop_per_byte: float | None
    floor_ns: float | None
    bound: Bound | None
    bound_share: float | None

    @property
    def flop(self) -> float:
        """FLOPs on both units."""
        return self.matrix_flop + self.vector_flop


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """A pointwise kernel's arithmetic in operations per element: as it is, and where compute becomes the bound.

    `needed` is for a peak that counts a fused multiply-add as two operations; `needed_without_fma`, half of it, is for
    operations that can't be fused in pairs (the article's `x * 2`, repeated).
    """

    elements: float
    bytes_per_element: float
    operations: float
    needed: float
    needed_without_fma: float


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `calc`. Floors are for operands in DRAM; printing it prints what a terminal shows."""

    format: int = FORMAT
    what: str
    dtype: str
    shapes: dict[str, tuple[int, ...]]
    machine: str
    memory_bytes_per_s: float | None
    roofs: tuple[ComputeCeiling, ...]
    unfused: KernelPlan
    fused: KernelPlan
    saved_bytes: float
    saved_ns: float | None
    speedup: float | None
    balance: Balance | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return show.as_text(self) or f"{self.what} on {self.machine}: {self.fused.bound or 'unknown'}-bound"


class ArticleFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the article, and the same figure computed. `agrees`: the computed figure rounds to the claimed."""

    quote: str
    claimed: str
    computed: str
    how: str
    agrees: bool
    source: str = "article"


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A data-centre GPU's ratio of dense 16-bit matrix (and float32 vector) FLOP/s to memory bandwidth, in FLOP per
    byte."""

    name: str
    vendor: str
    year: int  # of its announcement
    matrix_flop_per_s: float
    vector_flop_per_s: float
    memory_bytes_per_s: float
    matrix_ratio: float
    vector_ratio: float


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the article's A100 table; `tflop_per_s_sparse` is the starred figure, with structured sparsity."""

    unit: str
    tflop_per_s: float
    tflop_per_s_sparse: float | None = None
    dtype: str
    kind: str


class Doubling(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the article's table of improvements: a factor per year, years, or a factor; None for its "--"."""

    row: str
    processor: float | None = None
    memory_module: float | None = None
    lan: float | None = None
    disk: float | None = None


class OperatorClass(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the article's BERT table, in percent."""

    operator_class: str
    flop_percent: float
    runtime_percent: float


class Article(msgspec.Struct, frozen=True, kw_only=True):
    """The article's arithmetic: its figures computed, and its tables as stored in the data."""

    format: int = FORMAT
    claims: tuple[ArticleFigure, ...]
    a100: tuple[Peak, ...]
    doubling: tuple[Doubling, ...]
    bert: tuple[OperatorClass, ...]
