"""The results of the lab's experiments: tables, plots, and each claim of the article with what was measured here."""

from __future__ import annotations

from typing import Literal

import msgspec

from gobrrr.model.measured import Environment, Quantity

FORMAT = 1

Verdict = Literal["holds", "does not hold", "can't tell"]
Status = Literal["measured", "skipped"]
Cell = str | float | Quantity | None


class ArticleClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of the article, word for word, with a number ("1a")."""

    number: str
    quote: str
    source: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A claim tested on this device. `here`: what was measured; `rule`: when the claim counts as holding."""

    claim: ArticleClaim
    verdict: Verdict
    here: str
    rule: str


class LabColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column's title and the unit of its numbers: "s", "B", "B/s", "FLOP", "FLOP/s", "1/s", "share", "x" or ""."""

    name: str
    unit: str = ""


class LabTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells; None: not known."""

    title: str
    columns: tuple[LabColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One curve as points (x, y)."""

    name: str
    points: tuple[tuple[float, float], ...]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """Curves on two logarithmic axes; `marks` are vertical lines with a name."""

    title: str
    x: str
    y: str
    y_unit: str
    series: tuple[Series, ...]
    marks: tuple[tuple[str, float], ...] = ()


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A box of a flame graph: its start in seconds from the left edge, its width, and its depth."""

    name: str
    depth: int
    start_s: float
    duration_s: float


class Flame(msgspec.Struct, frozen=True, kw_only=True):
    """A flame graph: the widest frame is at depth 0."""

    title: str
    frames: tuple[Frame, ...]


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment; `why` says why it was skipped."""

    name: str
    title: str
    status: Status = "measured"
    why: str = ""
    tables: tuple[LabTable, ...] = ()
    plots: tuple[Plot, ...] = ()
    flames: tuple[Flame, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    notes: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    duration_s: float = 0.0


class LabReport(msgspec.Struct, frozen=True, kw_only=True):
    """The experiments of one device."""

    environment: Environment
    experiments: tuple[Experiment, ...]
    format: int = FORMAT
