"""The expected saving of a change: the replay's answer, corrected by the errors of replays that were measured.

The replay's own interval covers what the change may do to the graph. Measurements differ from it for reasons outside of
the graph: the host changes from minute to minute, another type has other kernels. So the expected saving and its 80 %
interval come from the residuals of the bench of treatments (gobrrr.analysis.replay.fitted): their quantiles by
mechanism, scaled by what the change touches, and checked on workloads that were left out of the fit.

A saving never exceeds the time of the work that the change touches plus the idle time that it can fill.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.analysis.replay.fitted import ResidualSpread, fitted

Mechanism = str
BATCH_MECHANISM, GRAPH_MECHANISM, COMPILED_MECHANISM, NARROWER_MECHANISM, OTHER_MECHANISM = (
    "batch",
    "graph",
    "compiled",
    "narrower",
    "other",
)
NARROWING_TREATMENTS = ("bf16-autocast", "bf16-cast", "tf32", "fp8")
"""The mechanisms, and the treatments of the mechanism `NARROWER_MECHANISM`."""
OF_TOUCHED, OF_EFFECT, OF_WIDTH = 0.01, 0.3, 0.5
"""The scale of a residual is sqrt((touched + OF_TOUCHED) * (effect + OF_EFFECT + OF_WIDTH * width)), all as shares of
the step: `touched` is what the change touches, `effect` the distance of the saving from 0 or from 1, whichever is
nearer, and `width` that of the replay's interval. Chosen, not measured."""


@dataclass(frozen=True)
class ReplayedSaving:
    """The replay's answer for a change, as shares of the step, and what determines the error of such answers."""

    expected: float
    low: float
    high: float
    touched: float
    mechanism: Mechanism
    device: str

    @property
    def scale(self) -> float:
        """The scale of its residual, as a share of the step."""
        effect = max(min(abs(self.expected), 1.0 - self.expected), 0.0)
        return math.sqrt((self.touched + OF_TOUCHED) * (effect + OF_EFFECT + OF_WIDTH * (self.high - self.low)))


def mechanism_of(names: Sequence[str], work: float = 1.0) -> Mechanism:
    """The mechanism of a set of treatments, on which the error of its predicted saving depends."""
    words = {name.partition(":")[0].partition("=")[0] for name in names}
    if work != 1.0:
        return BATCH_MECHANISM
    if "cuda-graph" in words:
        return GRAPH_MECHANISM
    if "compile" in words:
        return COMPILED_MECHANISM
    return NARROWER_MECHANISM if words & set(NARROWING_TREATMENTS) else OTHER_MECHANISM


def spread_of(replayed: ReplayedSaving, spreads: Sequence[ResidualSpread] | None = None) -> ResidualSpread | None:
    """The residuals of the most specific group of a change; None where its device has none."""
    spreads = fitted().spreads if spreads is None else spreads
    for mechanism in (replayed.mechanism, ""):
        for spread in spreads:
            if (spread.device, spread.mechanism) == (replayed.device, mechanism):
                return spread
    return None


def predicted(replayed: ReplayedSaving, spreads: Sequence[ResidualSpread] | None = None) -> tuple[float, float, float]:
    """(expected, low, high): the saving as shares of the step; low <= expected <= high.

    The interval includes the replay's own, up to what the change touches. For a larger batch, for which the replay
    allows any saving, it comes from measurements alone. The expected saving exceeds the replay's by at most half of the
    touched work that the replay leaves, because that work does not vanish. Where nothing was fitted for such a change,
    the result is the replay's.
    """
    spread = spread_of(replayed, spreads)
    if spread is None or replayed.touched <= 0:
        return replayed.expected, replayed.low, replayed.high
    low, expected, high = (
        replayed.expected + part * replayed.scale for part in (spread.low, spread.middle, spread.high)
    )
    expected = min(expected, max(replayed.expected, (replayed.expected + replayed.touched) / 2))
    if replayed.mechanism != BATCH_MECHANISM:
        low, high = min(low, replayed.low), max(high, replayed.high)
    high = min(high, replayed.touched)
    low = min(low, high)
    return min(max(expected, low), high), low, high
