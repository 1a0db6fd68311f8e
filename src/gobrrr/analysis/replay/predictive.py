"""What a change will save once it is applied: the replay's answer, and how far replays were off where it was measured.

The replay's own interval is spanned by what the change may do to the graph. What was measured lies beside it for
reasons that no graph has: another host from minute to minute, other kernels for another type. So the saving that is
expected, and its interval of 80 %, come from the residuals of the bench of treatments (gobrrr.analysis.replay.fitted):
their quantiles by mechanism, on the scale of what the change touches, with whole workloads left out to check them.

No saving lies above the time of the work that the change touches and the idle time that it can fill.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.analysis.replay.fitted import Spread, fitted

Mechanism = str
BATCH, GRAPH, COMPILED, NARROWER, OTHER = "batch", "graph", "compiled", "narrower", "other"
NARROW = ("bf16-autocast", "bf16-cast", "tf32", "fp8")
OF_TOUCHED, OF_EFFECT, OF_WIDTH = 0.01, 0.3, 0.5
"""The scale of a residual is the square root of (what is touched + the first) times (the distance of the saving from
nothing or from all, whichever is nearer, + the second + the third times the replay's own width)."""


@dataclass(frozen=True)
class Replayed:
    """What the replay says of a change, in shares of the step, and what tells how far such answers are off."""

    expected: float
    low: float
    high: float
    touched: float
    mechanism: Mechanism
    device: str

    @property
    def scale(self) -> float:
        """The unit of its residual."""
        effect = max(min(abs(self.expected), 1.0 - self.expected), 0.0)
        return math.sqrt((self.touched + OF_TOUCHED) * (effect + OF_EFFECT + OF_WIDTH * (self.high - self.low)))


def mechanism_of(names: Sequence[str], work: float = 1.0) -> Mechanism:
    """What a set of treatments works by, as far as it matters for how well its saving is known."""
    words = {name.partition(":")[0].partition("=")[0] for name in names}
    if work != 1.0:
        return BATCH
    if "cuda-graph" in words:
        return GRAPH
    if "compile" in words:
        return COMPILED
    return NARROWER if words & set(NARROW) else OTHER


def spread_of(replayed: Replayed, spreads: Sequence[Spread] | None = None) -> Spread | None:
    """The narrowest group that a change belongs to; None where there is none for its device."""
    spreads = fitted().spreads if spreads is None else spreads
    for mechanism in (replayed.mechanism, ""):
        for spread in spreads:
            if (spread.device, spread.mechanism) == (replayed.device, mechanism):
                return spread
    return None


def predicted(replayed: Replayed, spreads: Sequence[Spread] | None = None) -> tuple[float, float, float]:
    """(what is expected, at least, at most) to be saved of the step, as shares of it; low <= expected <= high.

    The interval holds the replay's own, as far as the change touches so much; of a larger batch, of which the replay
    takes any saving to be possible, it is what was measured alone. What is expected beyond the replay is at
    most half of what the replay leaves of the work that is touched: that does not vanish. Where nothing was fitted for
    such a change, it is what the replay says.
    """
    spread = spread_of(replayed, spreads)
    if spread is None or replayed.touched <= 0:
        return replayed.expected, replayed.low, replayed.high
    low, expected, high = (
        replayed.expected + part * replayed.scale for part in (spread.low, spread.middle, spread.high)
    )
    expected = min(expected, max(replayed.expected, (replayed.expected + replayed.touched) / 2))
    if replayed.mechanism != BATCH:
        low, high = min(low, replayed.low), max(high, replayed.high)
    high = min(high, replayed.touched)
    low = min(low, high)
    return min(max(expected, low), high), low, high
