"""Measurements of a machine: each figure with its spread, and where, when and with what it was measured."""

from __future__ import annotations

from math import inf

import msgspec

from gobrrr.model.contention import Contention

FORMAT = 1
"""The version of the files that hold these records."""


class Quantity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The median of `runs` samples with their quartiles `low` and `high`; the record that holds it says the unit.

    `best`: the best sample (the least time or the highest rate); None: it was not kept.
    """

    value: float
    low: float
    high: float
    runs: int
    best: float | None = None

    @property
    def spread(self) -> float:
        """The interquartile range over the median; 0 for a median of 0."""
        return (self.high - self.low) / abs(self.value) if self.value else 0.0

    def scaled(self, factor: float) -> Quantity:
        """The same samples times `factor` (positive)."""
        best = None if self.best is None else self.best * factor
        return Quantity(
            value=self.value * factor, low=self.low * factor, high=self.high * factor, runs=self.runs, best=best
        )

    def rate(self, work: float) -> Quantity:
        """`work` per second, where this is seconds: the slow quartile becomes the low rate, the least time the best."""
        least = self.low if self.best is None else self.best
        value, low, high, best = (work / time if time else inf for time in (self.value, self.high, self.low, least))
        return Quantity(value=value, low=low, high=high, runs=self.runs, best=None if self.best is None else best)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where and with what it was measured. `driver`: the version of the GPU's driver, or of the kernel for a CPU;
    `date`: UTC, ISO 8601."""

    device_name: str
    kind: str  # "cpu" or "cuda" (which ROCm uses as well)
    index: int = 0
    devices: int = 1  # of this kind in the machine
    driver: str | None = None
    torch: str = ""
    toolkit: str | None = None  # CUDA or ROCm that torch was built for
    compiler: str | None = None  # the code generator of the fusing compiler; None: there is none
    python: str = ""
    platform: str = ""
    threads: int = 1
    memory_bytes: int | None = None
    date: str = ""


class StageRun(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of the measuring: when it ran (UTC), and what other processes had of the machine.

    `tries`: how often the stage has run so far.
    """

    name: str
    date: str = ""
    contention: Contention | None = None
    tries: int = 1


class MeasuredFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. `group` and `name` say which ("matrix", "bfloat16"), `at` under which conditions ("n = 8192").

    `stage`: the name of the stage that measured it; "" in older files, without stages.
    """

    group: str
    name: str
    unit: str  # "FLOP/s", "B/s", "s" or "1/s"
    amount: Quantity
    at: str = ""
    stage: str = ""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a curve: `x` in the curve's unit of x, `y` in its unit of y."""

    x: float
    y: Quantity


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep: matmul FLOP/s by size, bandwidth by working set, bus bandwidth by message."""

    name: str
    x_unit: str
    y_unit: str
    points: tuple[CurvePoint, ...] = ()
    note: str = ""
    stage: str = ""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """What was not measured, and why; it never counts as zero. `late`: there was no time left for it."""

    what: str
    why: str
    stage: str = ""
    late: bool = False


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One device's measured ceilings, in SI units; a fused multiply-add is 2 FLOP."""

    environment: Environment
    entries: tuple[MeasuredFigure, ...] = ()
    curves: tuple[Curve, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    stages: tuple[StageRun, ...] = ()
    duration_s: float = 0.0
    format: int = FORMAT

    def stage(self, name: str) -> StageRun | None:
        """The stage of that name; None where there is none."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def entry(self, group: str, name: str) -> MeasuredFigure | None:
        """The figure of that name; None where it was not measured."""
        return next((entry for entry in self.entries if (entry.group, entry.name) == (group, name)), None)

    def curve(self, name: str) -> Curve | None:
        """The sweep of that name; None where it was not measured."""
        return next((curve for curve in self.curves if curve.name == name), None)
