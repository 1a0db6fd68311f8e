"""Constants that were fitted to measurements: one data file, with what each rests on (data/fitted.json).

`python -m bench.calibration --fit` writes the file; docs/calibration.md shows it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

PATH = "data/fitted.json"


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """How predictions did on workloads that were left out of their fit, shares of one step.

    `error`: the median distance of what was expected from what was measured; `width`: the median; `score`: the mean
    interval score.
    """

    n: int
    error: float
    coverage: float
    width: float
    score: float


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """What measured savings lie beside replayed ones, in units of a saving's scale (gobrrr.analysis.replay.predictive).

    `device`: "cuda" or "cpu"; `mechanism`: "" for all of them. `low`, `middle`, `high`: the quantiles, drawn
    to those of the group around it where there are few points; `least`, `most`: the points' own ends.
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


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the replay: the `quantile` of points from `low` to `high`, each of one measured step; `quarters`:
    what a quarter of them lies below, and above."""

    name: str
    value: float
    unit: str
    points: int
    low: float
    high: float
    quantile: float = 0.5
    quarters: tuple[float, float] = (0.0, 0.0)

    def needed(self, share: float) -> float:
        """What the host needs at a share of a change's effect: the value at 0.5, the quarters at the least and most."""
        least, most = self.quarters
        if share < 0.5:
            return most + (self.value - most) * 2 * share
        return self.value + (least - self.value) * (2 * share - 1)


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """The file. `levels`: the quantiles that `Spread` holds; `drawn`: how many workloads the group around one counts
    as; `noisy`: measurements whose rounds vary by more than this share of the step were left out."""

    command: str
    date: str
    hardware: list[str]
    workloads: int
    levels: tuple[float, float, float]
    drawn: float
    noisy: float
    spreads: list[Spread]
    left_out: LeftOut
    constants: list[Constant] = []


@cache
def fitted() -> Fitted:
    """The shipped file."""
    return msgspec.json.decode(files("gobrrr").joinpath(PATH).read_bytes(), type=Fitted)


def constant(name: str) -> float:
    """A constant of the file. Raises KeyError where it has none of this name."""
    return by_name(name).value


def by_name(name: str) -> Constant:
    """A constant with what it rests on. Raises KeyError where there is none of this name."""
    return {one.name: one for one in fitted().constants}[name]
