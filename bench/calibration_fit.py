"""The predictive interval's quantiles, from points that were measured; whole workloads are left out to check them.

A residual is what was measured less what the replay expects, on the scale of gobrrr.analysis.replay.predictive. Its
quantiles are those of all points of a device, and of a mechanism; the latter are drawn to the former as if those had
DRAWN workloads. The levels are those of LEVELS with the least interval score on the bench's workloads when they are
left out, of those that cover COVERED of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from gobrrr.analysis.replay.fitted import LeftOut, ResidualSpread
from gobrrr.analysis.replay.predictive import ReplayedSaving, predicted

DRAWN = 3.0
NOISY = 0.3
"""A measurement whose rounds' middle half spans more of the step than this tells nothing."""

DOUBT = 0.2
"""What an interval may leave out: 80 % are to be covered."""

COVERED = 0.72
"""What is asked of the intervals that are left out, which are to cover 70 to 90 %. The law cuts high ends off at what a
change touches, so that they cover less than the quantiles say."""

Levels = tuple[float, float, float]
TAILS = (0.1, 0.08, 0.06, 0.04)
LEVELS: tuple[Levels, ...] = tuple((low, 0.5, 1 - high) for low in TAILS for high in TAILS)


@dataclass(frozen=True)
class Sample:
    """A change that was replayed and measured: shares of the step. `workload`: what is left out as a whole."""

    workload: str
    replayed: ReplayedSaving
    measured: float
    spread: float = 0.0

    @property
    def residual(self) -> float:
        """What was measured beside what was replayed, on the residual's scale."""
        return (self.measured - self.replayed.expected) / self.replayed.scale


class Interval(NamedTuple):
    """A predicted saving, shares of the step."""

    expected: float
    low: float
    high: float

    def error(self, measured: float) -> float:
        """How far what was expected is off."""
        return abs(self.expected - measured)

    def covers(self, measured: float) -> bool:
        """Whether the measured saving lies in it."""
        return self.low <= measured <= self.high

    def score(self, measured: float) -> float:
        """The interval score (Gneiting and Raftery 2007): its width, and 10 times what lies outside."""
        outside = max(self.low - measured, measured - self.high, 0.0)
        return self.high - self.low + 2 / DOUBT * outside


def spreads(samples: Sequence[Sample], levels: Levels) -> list[ResidualSpread]:
    """The quantiles of each group that has points."""
    telling = [sample for sample in samples if sample.spread <= NOISY]
    made: list[ResidualSpread] = []
    for device in sorted({sample.replayed.device for sample in telling}):
        mine = [sample for sample in telling if sample.replayed.device == device]
        every = _group(mine, (device, ""), levels, None)
        made.append(every)
        for mechanism in sorted({sample.replayed.mechanism for sample in mine}):
            of_it = [sample for sample in mine if sample.replayed.mechanism == mechanism]
            made.append(_group(of_it, (device, mechanism), levels, every))
    return made


def _group(
    mine: Sequence[Sample], key: tuple[str, str], levels: Levels, around: ResidualSpread | None
) -> ResidualSpread:
    residuals = [sample.residual for sample in mine]
    found = np.quantile(residuals, levels)
    count = len({sample.workload for sample in mine})
    if around is not None:
        outer = np.array([around.low, around.middle, around.high])
        found = (count * found + DRAWN * outer) / (count + DRAWN)
    low, middle, high = (round(float(value), 4) for value in found)
    return ResidualSpread(
        device=key[0], mechanism=key[1], points=len(mine), workloads=count, low=low, middle=middle,
        high=high, least=round(min(residuals), 4), most=round(max(residuals), 4),
    )  # fmt: skip


def left_out(samples: Sequence[Sample], levels: Levels) -> list[Interval]:
    """Each sample's interval from a fit without its workload."""
    by_workload = {
        name: spreads([sample for sample in samples if sample.workload != name], levels)
        for name in dict.fromkeys(sample.workload for sample in samples)
    }
    return [Interval(*predicted(sample.replayed, by_workload[sample.workload])) for sample in samples]


def judged(intervals: Sequence[Interval], measured: Sequence[float]) -> LeftOut:
    """How well intervals did."""
    both = list(zip(intervals, measured, strict=True))
    return LeftOut(
        n=len(both),
        error=round(statistics.median(interval.error(got) for interval, got in both), 4),
        coverage=round(sum(interval.covers(got) for interval, got in both) / len(both), 4),
        width=round(statistics.median(interval.high - interval.low for interval, _ in both), 4),
        score=round(statistics.fmean(interval.score(got) for interval, got in both), 4),
    )


@dataclass(frozen=True)
class Fit:
    """The quantiles, their levels, and each sample's interval without its workload."""

    spreads: list[ResidualSpread]
    levels: Levels
    intervals: list[Interval]


def fit(bench: Sequence[Sample], others: Sequence[Sample] = ()) -> Fit:
    """The quantiles of all samples, at the levels that do best on the bench's workloads when they are left out, and how
    each group does there."""
    samples = [*bench, *others]
    measured = [sample.measured for sample in samples]
    tried = [(levels, left_out(samples, levels)) for levels in LEVELS]
    told = [judged(intervals[: len(bench)], measured[: len(bench)]) for _, intervals in tried]
    enough = [at for at, out in enumerate(told) if out.coverage >= COVERED]
    best = min(enough or range(len(told)), key=lambda at: told[at].score if enough else -told[at].coverage)
    levels, intervals = tried[best]
    made = []
    for group in spreads(samples, levels):
        mine = [at for at, sample in enumerate(samples) if _within(sample.replayed, group)]
        found = judged([intervals[at] for at in mine], [measured[at] for at in mine])
        made.append(replace(group, left_out=found))
    return Fit(made, levels, intervals)


def _within(replayed: ReplayedSaving, group: ResidualSpread) -> bool:
    return replayed.device == group.device and group.mechanism in ("", replayed.mechanism)
