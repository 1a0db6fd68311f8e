"""Which figures of a measurement are only bounds: the machine was busy, or the repeats differ. What to measure again.

However busy the machine was, the best repeat of a rate is a lower bound of what it can do. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite

import msgspec

from gobrrr import units
from gobrrr.model.contention import DISTURBED, Contention
from gobrrr.model.measured import Curve, MeasuredFigure, Measurement, Quantity, Skipped

RELIABLE = 0.25
"""Where the quartiles are further apart than this share of the median, the median is no ceiling: the best repeat is a
lower bound of it."""
MOST_TRIES = 4
"""A stage is not measured again by itself after this many runs: its repeats then differ on a quiet machine too."""

CEILINGS = ("matrix", "vector", "memory", "host")
"""Groups whose figures are ceilings of floors; beside them the curve of the caches."""
ON_HOST = ("python", "dispatch", "launch", "observer")
"""Groups that the host's processors decide, also where the device is a GPU."""
CACHE_CURVE = "bandwidth by working set"
"""The name of the curve of the caches."""


def at_least(amount: Quantity) -> float:
    """The rate that was certainly reached: the best repeat, or the upper quartile, which some repeats passed."""
    best = amount.best if amount.best is not None and isfinite(amount.best) else 0.0
    return max(best, amount.high)


def at_most(amount: Quantity) -> float:
    """The time that is certainly enough: the best repeat, or the lower quartile."""
    best = amount.best if amount.best is not None and amount.best > 0 else inf
    return min(best, amount.low)


def doubt(measured: Measurement, entry: MeasuredFigure) -> str:
    """Why a figure is only a bound, as a clause; "" where its median is what the machine does."""
    return _busy(measured, entry.stage, entry.group in ON_HOST) or _spread(entry.amount)


def doubt_of_point(measured: Measurement, curve: Curve, amount: Quantity) -> str:
    """The same of a point of a curve."""
    return _busy(measured, curve.stage, False) or _spread(amount)


def _spread(amount: Quantity) -> str:
    return f"its repeats were {units.percent(amount.spread)} apart" if amount.spread > RELIABLE else ""


def _busy(measured: Measurement, stage: str, on_host: bool) -> str:
    run = measured.stage(stage)
    if run is None or run.contention is None:
        return ""
    shared = run.contention
    lost = shared.lost if on_host or measured.environment.kind == "cpu" else shared.device
    return shared.in_words() if lost is not None and lost >= DISTURBED else ""


def doubtful(measured: Measurement) -> list[MeasuredFigure]:
    """The ceilings among the entries that are only lower bounds."""
    return [entry for entry in measured.entries if entry.group in CEILINGS and doubt(measured, entry)]


def busiest(measured: Measurement) -> Contention | None:
    """The contention of the stage that lost most time to others; None where none lost enough to matter."""
    found = [run.contention for run in measured.stages if run.contention is not None]
    kept = [contention for contention in found if _lost(contention) >= DISTURBED]
    return max(kept, key=lambda contention: _lost(contention) * contention.seconds, default=None)


def _lost(shared: Contention) -> float:
    return max(shared.lost or 0.0, shared.device or 0.0)


def unsettled(measured: Measurement, groups: Iterable[str] = CEILINGS) -> list[str]:
    """Stages worth running again on a quiet machine: those whose `groups` hold bounds, and those that lacked time.

    A slow machine lacks time in every run: a stage without time is tried again only where others used the machine.
    """
    wanted = set(groups)
    names = {entry.stage for entry in measured.entries if entry.group in wanted and doubt(measured, entry)}
    names |= {curve.stage for curve in measured.curves if curve.name == CACHE_CURVE and _top_doubt(measured, curve)}
    if busiest(measured) is not None:
        names |= {skipped.stage for skipped in measured.skipped if skipped.late}
    return [run.name for run in measured.stages if run.name in names and run.tries < MOST_TRIES]


def _top_doubt(measured: Measurement, curve: Curve) -> str:
    top = max(curve.points, key=lambda point: point.y.value, default=None)
    return doubt_of_point(measured, curve, top.y) if top is not None else ""


def merged(kept: Measurement, new: Measurement) -> Measurement:
    """The newer measurement with what the older one knows better: each stage is that of the run with less doubt.

    Both are of one device, driver and torch. Of two runs in doubt the one that reached more stays.
    """
    runs, entries, curves, skipped = [], list[MeasuredFigure](), list[Curve](), list[Skipped]()
    older = {run.name: run for run in kept.stages}
    for name in dict.fromkeys([*(run.name for run in kept.stages), *(run.name for run in new.stages)]):
        source = kept if _older_is_better(kept, new, name) else new
        run = source.stage(name)
        assert run is not None
        known = name in older and new.stage(name) is not None and bool(_in_doubt(source, name))
        runs.append(msgspec.structs.replace(run, tries=run.tries + older[name].tries) if known else run)
        entries += [entry for entry in source.entries if entry.stage == name]
        curves += [curve for curve in source.curves if curve.stage == name]
        skipped += [left_out for left_out in source.skipped if left_out.stage == name]
    return msgspec.structs.replace(
        new, entries=tuple(entries), curves=tuple(curves), skipped=tuple(skipped), stages=tuple(runs)
    )


def _in_doubt(measured: Measurement, stage: str) -> bool:
    return (
        any(entry.stage == stage and doubt(measured, entry) for entry in measured.entries)
        or any(curve.stage == stage and _top_doubt(measured, curve) for curve in measured.curves)
        or any(skipped.stage == stage and skipped.late for skipped in measured.skipped)
    )


def _older_is_better(kept: Measurement, new: Measurement, stage: str) -> bool:
    if new.stage(stage) is None or kept.stage(stage) is None:
        return new.stage(stage) is None
    if not _in_doubt(new, stage):
        return False
    return not _in_doubt(kept, stage) or _reached(kept, stage) > _reached(new, stage)


def _reached(measured: Measurement, stage: str) -> float:
    """The first figure of a stage, larger for a faster machine: the rate reached, or the inverse of the time needed."""
    for entry in measured.entries:
        if entry.stage == stage:
            return at_least(entry.amount) if entry.unit != "s" else 1.0 / at_most(entry.amount)
    points = [at_least(point.y) for curve in measured.curves if curve.stage == stage for point in curve.points]
    return max(points, default=0.0)
