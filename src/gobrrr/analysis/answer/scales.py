"""The article's second check: does the time follow the work when the batch grows?

A step that waits for its host takes as long for twice the batch. So does a product of a few rows with a large matrix,
whose bytes stay what they are: time is held against FLOPs and against bytes, at each size.
"""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.model.diagnosis import Regime
from gobrrr.model.live import Scaling

SAME = 0.1
"""Growth under a tenth is none: a step repeats no better."""

FOLLOWS, IGNORES = 0.7, 0.3
"""Growth of the time over that of the work: from the first on it follows, up to the second it does not."""

OVERHEAD, WORK, BYTES = "overhead", "time follows the work", "time follows the bytes, not the FLOPs"
PART, SILENT = "time follows the work in part", "nothing follows from that"


@dataclass(frozen=True)
class Scaled:
    """The lines to print, one a size, and whether the largest size speaks against the regime."""

    lines: tuple[str, ...]
    against: bool


def scaled(scaling: Scaling | None, regime: Regime) -> Scaled:
    """What the scaling test says of a regime. Nothing without a test of two sizes."""
    if scaling is None or len(scaling.points) < 2:
        return Scaled((), against=False)
    first, *others = scaling.points
    moved = [*scaling.bytes, *[None] * len(scaling.points)]
    lines, said = [], SILENT
    for (factor, ns, flop), bytes_ in zip(others, moved[1:], strict=False):
        time, work, traffic = _ratio(ns, first[1]), _ratio(flop, first[2]), _ratio(bytes_, moved[0])
        if time is None:
            continue
        said = _said(time, work, traffic)
        beside = [f"{what} x{one:.1f}" for what, one in (("FLOPs", work), ("bytes", traffic)) if one is not None]
        than = f" while {' and '.join(beside)}" if beside else ""
        lines.append(f"batch x{factor / first[0]:g}: time x{time:.1f}{than}: {said}")
    against = _against(said, regime)
    if against and lines:
        lines[-1] += f", which speaks against {regime} as the bound"
    return Scaled(tuple(lines), against)


def _ratio(value: float | None, first: float | None) -> float | None:
    return value / first if value is not None and first else None


def _said(time: float, work: float | None, traffic: float | None) -> str:
    if work is None or work - 1 <= SAME:
        return SILENT
    least = work - 1 if traffic is None else min(work, traffic) - 1
    if time - 1 >= FOLLOWS * (work - 1):
        return WORK
    if least > SAME and time - 1 <= IGNORES * least:
        return OVERHEAD if traffic is not None else "overhead, or bytes that stay"
    if traffic is not None and (least <= SAME or time - 1 >= FOLLOWS * (traffic - 1)):
        return BYTES if traffic - 1 > SAME else "neither time nor bytes grow: overhead, or weights that are read"
    return PART


def _against(said: str, regime: Regime) -> bool:
    """Overhead does not grow with the work; arithmetic and traffic do."""
    if said == OVERHEAD:
        return regime in ("compute", "memory")
    if said in (WORK, BYTES):
        return regime == "overhead" or (said == BYTES and regime == "compute")
    return False
