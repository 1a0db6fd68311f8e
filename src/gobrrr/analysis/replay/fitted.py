"""Constants that were fitted to measurements: one data file, with the basis of each constant (data/fitted.json).

`python -m bench.calibration --fit` writes the file; docs/calibration.md shows it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

FITTED_PATH = "data/fitted.json"
"""The file, within the package."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of predictions for workloads that were left out of the fit, as shares of a step.

    `n`: how many; `error`: the median distance of expected from measured; `coverage`: the share of measurements within
    their interval; `width`: the median width of the intervals; `score`: the mean interval score.
    """

    n: int
    error: float
    coverage: float
    width: float
    score: float


class ResidualSpread(msgspec.Struct, frozen=True, kw_only=True):
    """The residuals of replayed savings, in units of a saving's scale (gobrrr.analysis.replay.predictive).

    `device`: "cuda" or "cpu"; `mechanism`: "" for all of them. `low`, `middle`, `high`: the quantiles, shrunk towards
    those of the larger group where there are few points; `least`, `most`: the points' smallest and largest.
    """

    device: str
    mechanism: str
    points: int
    workloads: int
    low: float
    middle: float
    high: float
    least: float
    most: float
    left_out: LeftOut | None = None


class FittedConstant(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the replay: the `quantile` of points from `low` to `high`, each from one measured step.
    `quarters`: the quartiles."""

    name: str
    value: float
    unit: str
    points: int
    low: float
    high: float
    quantile: float = 0.5
    quarters: tuple[float, float] = (0.0, 0.0)

    def needed(self, share: float) -> float:
        """The host's need when a change has a share of its effect: the value at 0.5, the upper quartile at 0, the lower
        at 1."""
        least, most = self.quarters
        if share < 0.5:
            return most + (self.value - most) * 2 * share
        return self.value + (least - self.value) * (2 * share - 1)


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """The file. `levels`: the quantiles in `ResidualSpread`; `drawn`: the weight of the larger group, in workloads;
    `noisy`: measurements whose rounds vary by more than this share of the step were left out."""

    command: str
    date: str
    hardware: list[str]
    workloads: int
    levels: tuple[float, float, float]
    drawn: float
    noisy: float
    spreads: list[ResidualSpread]
    left_out: LeftOut
    constants: list[FittedConstant] = []


@cache
def fitted() -> Fitted:
    """The shipped file."""
    return msgspec.json.decode(files("gobrrr").joinpath(FITTED_PATH).read_bytes(), type=Fitted)


def constant(name: str) -> float:
    """A constant's value. Raises KeyError where there is none of this name."""
    return by_name(name).value


def by_name(name: str) -> FittedConstant:
    """A constant with its basis. Raises KeyError where there is none of this name."""
    return {entry.name: entry for entry in fitted().constants}[name]
