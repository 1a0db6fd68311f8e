"""A roofline of a few lines: log-log, in plain characters, with the ridge and the points marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr import units
from gobrrr.model.envelope import ComputeCeiling, Envelope, KernelPlan
from gobrrr.report.layout import Line, Page

ROWS = 8
SKETCH_LABEL_CELLS = 14
MAX_COLUMNS = 56
UNFUSED_SIGN, FUSED_SIGN, RIDGE = "o", "*", "+"


@dataclass(frozen=True)
class Axes:
    """The area: intensities (FLOP a byte) from left to right, FLOP/s from bottom to top, both logarithmic."""

    left: float
    right: float
    bottom: float
    top: float
    columns: int

    def column(self, intensity: float) -> int:
        """The cell of an intensity."""
        share = math.log(intensity / self.left) / math.log(self.right / self.left)
        return min(self.columns - 1, max(0, round(share * (self.columns - 1))))

    def row(self, rate: float) -> int:
        """The line of a rate, 0 at the top."""
        share = math.log(rate / self.bottom) / math.log(self.top / self.bottom)
        return min(ROWS - 1, max(0, ROWS - 1 - round(share * (ROWS - 1))))

    def intensity(self, column: int) -> float:
        """The intensity in the middle of a cell."""
        return self.left * math.exp(math.log(self.right / self.left) * column / (self.columns - 1))


def sketch(envelope: Envelope, page: Page) -> list[Line]:
    """The roofs that the work meets and where it stands; nothing where there is no intensity to show."""
    points = [
        (mark, point)
        for mark, plan in ((UNFUSED_SIGN, envelope.unfused), (FUSED_SIGN, envelope.fused))
        if (point := _point(plan))
    ]
    roofs = [roof for roof in envelope.roofs if roof.ridge]
    bandwidth = envelope.memory_bytes_per_s
    if not points or not roofs or not bandwidth:
        return []
    axes = _axes(points, roofs, bandwidth, min(MAX_COLUMNS, page.width - SKETCH_LABEL_CELLS - 4))
    cells = [[" "] * axes.columns for _ in range(ROWS)]
    _draw_memory(cells, axes, bandwidth, max(roof.flop_per_s for roof in roofs))
    for roof in roofs:
        _draw_roof(cells, axes, roof)
    for mark, (intensity, rate) in points:
        cells[axes.row(rate)][axes.column(intensity)] = mark
    labels = {axes.row(roof.flop_per_s): units.rate(roof.flop_per_s, "FLOP") for roof in roofs}
    lines: list[Line] = [
        [(f"{labels.get(row, ''):>{SKETCH_LABEL_CELLS}} |{''.join(cells[row])}", "")] for row in range(ROWS)
    ]
    lines.append([(f"{'':>{SKETCH_LABEL_CELLS}} +{'-' * axes.columns}", "")])
    lines.append([(f"{'FLOP/byte':>{SKETCH_LABEL_CELLS}}  {_ticks(axes, points, roofs)}", "")])
    return [*lines, [(f"{'':>{SKETCH_LABEL_CELLS}}  {_legend(envelope)}", "dim")]]


def _point(plan: KernelPlan) -> tuple[float, float] | None:
    """(intensity, FLOP/s at the floor)."""
    if not plan.flop or not plan.flop_per_byte or not plan.floor_ns:
        return None
    return plan.flop_per_byte, plan.flop / plan.floor_ns * 1e9


def _axes(
    points: Sequence[tuple[str, tuple[float, float]]], roofs: Sequence[ComputeCeiling], bandwidth: float, columns: int
) -> Axes:
    marks = [intensity for _, (intensity, _) in points] + [roof.ridge or 1.0 for roof in roofs]
    left, right = min(marks) / 2, max(marks) * 4
    top = max(roof.flop_per_s for roof in roofs)
    bottom = min([left * bandwidth, *(rate for _, (_, rate) in points)])
    return Axes(left, right, bottom, top, columns)


def _draw_memory(cells: list[list[str]], axes: Axes, bandwidth: float, highest: float) -> None:
    for column in range(axes.columns):
        rate = axes.intensity(column) * bandwidth
        if rate < highest:
            cells[axes.row(rate)][column] = "/"


def _draw_roof(cells: list[list[str]], axes: Axes, roof: ComputeCeiling) -> None:
    start, row = axes.column(roof.ridge or axes.right), axes.row(roof.flop_per_s)
    for column in range(start + 1, axes.columns):
        cells[row][column] = "-"
    cells[row][start] = RIDGE


def _ticks(axes: Axes, points: Sequence[tuple[str, tuple[float, float]]], roofs: Sequence[ComputeCeiling]) -> str:
    """The intensities of the points and of the ridges under their columns, as many as fit."""
    wanted = [intensity for _, (intensity, _) in points] + [roof.ridge or 0.0 for roof in roofs]
    text = ""
    for intensity in sorted(set(wanted)):
        label = units.count(intensity)
        at = min(axes.column(intensity), axes.columns - len(label))
        if at > len(text) or not text:
            text = f"{text:<{at}}{label}"
    return text


def _legend(envelope: Envelope) -> str:
    same = envelope.unfused == envelope.fused
    marks = f"{FUSED_SIGN} this" if same else f"{UNFUSED_SIGN} op by op   {FUSED_SIGN} fused"
    return f"{marks}   {RIDGE} ridge"
