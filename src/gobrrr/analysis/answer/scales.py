"""The article's second check: does the time follow the work when the batch grows?

A step that waits for its host takes as long for twice the batch. So does a product of a few rows with a large matrix,
whose bytes hardly grow. So at each size the time is compared with the FLOPs and with the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.model.diagnosis import Regime
from gobrrr.model.live import Scaling

SAME_BATCH_TIME = 0.1
"""Growth below this share counts as none: a step's time repeats no better. Chosen, not measured."""

LEAST_FOLLOWING_GROWTH, MOST_IGNORING_GROWTH = 0.7, 0.3
"""Growth of the time over growth of the work. The time follows the work at or above the first, and does not follow it
at or below the second. Chosen, not measured."""

SAYS_OVERHEAD, SAYS_WORK, SAYS_BYTES = "overhead", "time follows the work", "time follows the bytes, not the FLOPs"
SAYS_WORK_IN_PART, SAYS_NOTHING = "time follows the work in part", "nothing follows from that"
"""What one size says, in the words of the evidence."""


@dataclass(frozen=True)
class ScalingCheck:
    """The lines to print, one per size, and whether the largest size contradicts the regime."""

    lines: tuple[str, ...]
    against: bool


def scaled(scaling: Scaling | None, regime: Regime) -> ScalingCheck:
    """What the scaling test says about a regime; no lines without a test of two sizes."""
    if scaling is None or len(scaling.points) < 2:
        return ScalingCheck((), against=False)
    first, *others = scaling.points
    moved = [*scaling.bytes, *[None] * len(scaling.points)]
    lines, said = [], SAYS_NOTHING
    for (factor, ns, flop), bytes_ in zip(others, moved[1:], strict=False):
        time, work, traffic = _ratio(ns, first[1]), _ratio(flop, first[2]), _ratio(bytes_, moved[0])
        if time is None:
            continue
        said = _said(time, work, traffic)
        grown = [f"{what} x{ratio:.1f}" for what, ratio in (("FLOPs", work), ("bytes", traffic)) if ratio is not None]
        beside = f" while {' and '.join(grown)}" if grown else ""
        lines.append(f"batch x{factor / first[0]:g}: time x{time:.1f}{beside}: {said}")
    against = _against(said, regime)
    if against and lines:
        lines[-1] += f", which speaks against {regime} as the bound"
    return ScalingCheck(tuple(lines), against)


def _ratio(value: float | None, first: float | None) -> float | None:
    return value / first if value is not None and first else None


def _said(time: float, work: float | None, traffic: float | None) -> str:
    """What one size says, from the ratios of time, FLOPs and bytes to those of the first size."""
    if work is None or work - 1 <= SAME_BATCH_TIME:
        return SAYS_NOTHING
    least = work - 1 if traffic is None else min(work, traffic) - 1
    if time - 1 >= LEAST_FOLLOWING_GROWTH * (work - 1):
        return SAYS_WORK
    if least > SAME_BATCH_TIME and time - 1 <= MOST_IGNORING_GROWTH * least:
        return SAYS_OVERHEAD if traffic is not None else "overhead, or bytes that do not grow"
    if traffic is not None and (least <= SAME_BATCH_TIME or time - 1 >= LEAST_FOLLOWING_GROWTH * (traffic - 1)):
        return (
            SAYS_BYTES
            if traffic - 1 > SAME_BATCH_TIME
            else "neither time nor bytes grow: overhead, or reading the weights"
        )
    return SAYS_WORK_IN_PART


def _against(said: str, regime: Regime) -> bool:
    """Whether `said` contradicts the regime: overhead does not grow with the work; arithmetic and traffic do."""
    if said == SAYS_OVERHEAD:
        return regime in ("compute", "memory")
    if said in (SAYS_WORK, SAYS_BYTES):
        return regime == "overhead" or (said == SAYS_BYTES and regime == "compute")
    return False
