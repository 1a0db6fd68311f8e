"""The stages of `gobrrr machine`, each with the time that it may take; a stage that fails is reported, not fatal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timezone

from msgspec import structs

from gobrrr import units
from gobrrr.errors import GobrrrError
from gobrrr.hardware.bounds import CEILINGS, ON_HOST, merged, unsettled
from gobrrr.hardware.measure import host, links, matmul, memory, observer, vector
from gobrrr.hardware.measure.compiler import first_line
from gobrrr.hardware.measure.device import Device, find_device
from gobrrr.hardware.measure.settings import preserved
from gobrrr.hardware.measure.timing import CallTimer
from gobrrr.hardware.measure.watch import MachineWatch
from gobrrr.model.measured import Curve, MeasuredFigure, Measurement, Skipped, StageRun

MEASUREMENT_LIMIT_S = 57.0
"""The whole measurement: a stage that might end later is skipped."""
VECTOR_FIGURES = (("float32", "fma"), ("float32", "multiply"), ("float64", "fma"))
"""What is measured of the vector units: type and instruction."""

Progress = Callable[[str, int, int], None]
"""Called with what is measured now, how many stages are done, and how many there are."""


@dataclass
class Notebook:
    """What the stages wrote down so far; each record carries the name of the stage that runs now."""

    stage: str = ""
    entries: list[MeasuredFigure] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    runs: list[StageRun] = field(default_factory=list)

    def write(self, *found: MeasuredFigure | Curve | Skipped | None) -> None:
        """Add each record to those of its kind."""
        for result in found:
            if isinstance(result, MeasuredFigure):
                self.entries.append(structs.replace(result, stage=self.stage))
            elif isinstance(result, Curve):
                self.curves.append(structs.replace(result, stage=self.stage))
            elif result is not None:
                self.skipped.append(structs.replace(result, stage=self.stage))

    def is_late(self, stage: str) -> bool:
        """Whether a stage had no time."""
        return any(skipped.stage == stage and skipped.late for skipped in self.skipped)


@dataclass(frozen=True)
class Stage:
    """One stage, started only when `limit_s` is left: `run` gets the clock's time at which it should have ended.

    `compiles`: the compiler can't be stopped when the time is up, so that others on the machine make it longer.
    """

    name: str
    limit_s: float
    run: Callable[[CallTimer, Notebook, float], None]
    compiles: bool = False


def stages(device: Device) -> list[Stage]:
    """What is measured on a device, the cheapest first: a slow machine loses the last stages."""
    each = 4.0 if device.is_cpu else 2.5
    plan = [
        Stage("Python", 2.0, lambda bench, page, _: page.write(*host.measure_python(bench))),
        Stage("framework dispatch", 5.0, lambda bench, page, _: page.write(*host.measure_dispatch(bench))),
        Stage("kernel launches", 4.0, _launch),
        Stage("memory", 5.0, lambda bench, page, end_s: page.write(*memory.measure_dram(bench, end_s))),
        Stage("caches", 5.0, _curve),
        Stage("host links", 6.0, lambda bench, page, _: page.write(*links.measure_host_link(bench))),
        Stage("all-reduce", 8.0, _reduce),
    ]
    plan += [Stage(f"matmul, {dtype}", each, _matmul(dtype)) for dtype in matmul.DTYPES]
    # Behind what the host's time decides: what a profiler has set up in the driver stays, and may slow that down. The
    # compiler takes up to half of the minute on a slow host, and the device's time alone decides what it is for.
    plan.append(Stage("the profiler", 6.0 if device.is_cpu else 12.0, _observer))
    # The first use of the compiler loads it, which takes most of its stage's time.
    plan += [
        Stage(f"vector units, {dtype}, {kind}", 8.0 if at else 18.0, _vector(dtype, kind), compiles=True)
        for at, (dtype, kind) in enumerate(VECTOR_FIGURES)
    ]
    return plan


def measure(
    device: str | None = None,
    *,
    only: Collection[str] | None = None,
    progress: Progress | None = None,
    limit_s: float = MEASUREMENT_LIMIT_S,
    now: Callable[[], float] = time.perf_counter,
    watch: MachineWatch | None = None,
) -> Measurement:
    """Measure one device ("cpu", "cuda:0"; by default the first GPU, else the CPU) in under a minute.

    `only`: the stages of these names. What others disturbed, or what repeats badly, is measured once more where time is
    left and the machine is quiet then. Raises UsageError where torch or the device is missing. Every setting of torch
    is as before afterwards.
    """
    found = find_device(device)
    plan = [stage for stage in stages(found) if only is None or stage.name in only]
    watch = watch or MachineWatch(found)
    if not found.is_cpu:
        with found.torch.cuda.device(found.index):
            return _measure(CallTimer(found, now), plan, progress, limit_s, watch)
    return _measure(CallTimer(found, now), plan, progress, limit_s, watch)


def _measure(
    bench: CallTimer, plan: list[Stage], progress: Progress | None, limit_s: float, watch: MachineWatch
) -> Measurement:
    started = bench.now()
    end_s = started + limit_s
    with preserved(bench.device.torch):
        found = _once(bench, plan, end_s, progress, watch)
        again = unsettled(found, (*CEILINGS, *ON_HOST))
        left = [stage for stage in plan if stage.name in again and bench.now() + stage.limit_s <= end_s]
        if left and watch.is_quiet():
            found = merged(found, _once(bench, left, end_s, progress, watch))
    return structs.replace(found, duration_s=bench.now() - started)


def _once(
    bench: CallTimer, plan: list[Stage], end_s: float, progress: Progress | None, watch: MachineWatch
) -> Measurement:
    page, before, load = Notebook(), watch.device_share(), watch.system.load()
    run_stages(bench, plan, page, end_s, progress, watch)
    shares = [share for share in (before, watch.device_share(after=True)) if share is not None]
    return Measurement(
        environment=bench.device.environment(),
        entries=tuple(page.entries),
        curves=tuple(page.curves),
        skipped=tuple(page.skipped),
        stages=tuple(_with_device(run, max(shares)) for run in page.runs) if shares else tuple(page.runs),
        notes=_notes(bench.device, page.runs, load),
    )


def _with_device(run: StageRun, share: float) -> StageRun:
    shared = run.contention
    return run if shared is None else structs.replace(run, contention=structs.replace(shared, device=share))


def run_stages(
    bench: CallTimer,
    plan: list[Stage],
    page: Notebook,
    end_s: float,
    progress: Progress | None = None,
    watch: MachineWatch | None = None,
) -> None:
    """Run each stage that still has time; one that fails, or has none, is written down as skipped."""
    for done, stage in enumerate(plan):
        page.stage = stage.name
        if progress:
            progress(stage.name, done, len(plan))
        before = watch.begin() if watch else None
        limit_s = stage.limit_s / (1.0 - _lost(page.runs)) if stage.compiles else stage.limit_s
        if bench.now() + limit_s > end_s:
            why = f"less than {limit_s:.0f} s of the time was left"
            page.write(Skipped(what=stage.name, why=why, late=True))
        else:
            try:
                stage.run(bench, page, min(end_s, bench.now() + stage.limit_s))
            except (RuntimeError, MemoryError, OSError, ValueError, GobrrrError) as error:
                page.write(Skipped(what=stage.name, why=first_line(error)))
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        shared = watch.end(before) if watch and before and not page.is_late(stage.name) else None
        page.runs.append(StageRun(name=stage.name, date=date, contention=shared))
    if progress:
        progress("done", len(plan), len(plan))


MOST_LOST = 0.9
"""What others may take of a stage's time: a machine where they have more is not planned for."""


def _lost(runs: list[StageRun]) -> float:
    """The share of the time that others have cost the stages so far."""
    shares = [run.contention for run in runs if run.contention is not None]
    whole = sum(share.seconds for share in shares)
    return min(sum((share.lost or 0.0) * share.seconds for share in shares) / whole, MOST_LOST) if whole > 0 else 0.0


def _launch(bench: CallTimer, page: Notebook, _: float) -> None:
    if bench.device.is_cpu:
        page.write(Skipped(what="kernel launches", why="a CPU runs ops without launching kernels"))
    else:
        page.write(*host.measure_launch(bench))


def _curve(bench: CallTimer, page: Notebook, end_s: float) -> None:
    if bench.device.is_cpu:
        page.write(memory.last_cache())
    empty = next((entry.amount.value for entry in page.entries if entry.name == "graph replay, device"), None)
    page.write(memory.measure_curve(bench, empty, end_s))


def _matmul(dtype: str) -> Callable[[CallTimer, Notebook, float], None]:
    return lambda bench, page, end_s: page.write(*matmul.measure_matmul(bench, dtype, end_s))


def _vector(dtype: str, kind: str) -> Callable[[CallTimer, Notebook, float], None]:
    return lambda bench, page, _: page.write(vector.measure_vector(bench, dtype, kind))


def _observer(bench: CallTimer, page: Notebook, end_s: float) -> None:
    page.write(*observer.measure_observer(bench, end_s))


def _reduce(bench: CallTimer, page: Notebook, end_s: float) -> None:
    page.write(links.measure_all_reduce(bench, end_s))


def _notes(device: Device, runs: list[StageRun], load: float | None) -> tuple[str, ...]:
    """Notes on all figures: that the host was busy, where only its load average shows it, and the caveats."""
    told = any(run.contention is not None and run.contention.lost is not None for run in runs)
    processors = os.cpu_count() or 1
    if told or load is None or load < processors / 2:
        return _caveats(device)
    on = units.things(processors, "processor")
    busy = f"the host was busy (load average {load:.1f} on {on}): host and CPU figures are too low"
    return (busy, *_caveats(device))


def _caveats(device: Device) -> tuple[str, ...]:
    if device.is_cpu:
        return (
            f"{units.things(device.torch.get_num_threads(), 'thread')}; the cache curve is one thread's",
            "bytes are the program's: a CPU that reads a line before it overwrites it moves more",
        )
    return ("clocks as the driver set them; nothing was locked",)
