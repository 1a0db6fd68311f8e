"""The stages of `gobrrr machine`, each with the time that it may take; a stage that fails is reported, not fatal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gobrrr.errors import GobrrrError
from gobrrr.hardware.measure import host, links, matmul, memory, observer, vector
from gobrrr.hardware.measure.compiler import first_line
from gobrrr.hardware.measure.device import Device, find_device
from gobrrr.hardware.measure.settings import preserved
from gobrrr.hardware.measure.timing import Bench
from gobrrr.model.measured import Curve, Entry, Measurement, Skipped

LIMIT_S = 57.0
"""The whole measurement: a stage that might end later is skipped."""
VECTOR = (("float32", "fma"), ("float32", "multiply"), ("float64", "fma"))

Progress = Callable[[str, int, int], None]
"""Called with what is measured now, how many stages are done, and how many there are."""


@dataclass
class Notebook:
    """What the stages wrote down so far."""

    entries: list[Entry] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def write(self, *found: Entry | Curve | Skipped | None) -> None:
        """Put each record on the page it belongs to."""
        for one in found:
            if isinstance(one, Entry):
                self.entries.append(one)
            elif isinstance(one, Curve):
                self.curves.append(one)
            elif one is not None:
                self.skipped.append(one)


@dataclass(frozen=True)
class Stage:
    """One stage, started only when `limit_s` is left: `run` gets the clock's time at which it should have ended."""

    name: str
    limit_s: float
    run: Callable[[Bench, Notebook, float], None]


def stages(device: Device) -> list[Stage]:
    """What is measured on a device, the cheapest first: a slow machine loses the last stages."""
    each = 4.0 if device.is_cpu else 2.5
    plan = [
        Stage("Python", 2.0, lambda bench, page, _: page.write(*host.measure_python(bench))),
        Stage("framework dispatch", 5.0, lambda bench, page, _: page.write(*host.measure_dispatch(bench))),
        Stage("kernel launches", 4.0, _launch),
        Stage("memory", 5.0, lambda bench, page, _: page.write(*memory.measure_dram(bench))),
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
        Stage(f"vector units, {dtype}, {kind}", 8.0 if at else 18.0, _vector(dtype, kind))
        for at, (dtype, kind) in enumerate(VECTOR)
    ]
    return plan


def measure(
    device: str | None = None,
    *,
    progress: Progress | None = None,
    limit_s: float = LIMIT_S,
    now: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Measure one device ("cpu", "cuda:0"; by default the first GPU, else the CPU) in under a minute.

    Raises UsageError where torch or the device is missing. Every setting of torch is as before afterwards.
    """
    found = find_device(device)
    if not found.is_cpu:
        with found.torch.cuda.device(found.index):
            return _measure(Bench(found, now), stages(found), progress, limit_s)
    return _measure(Bench(found, now), stages(found), progress, limit_s)


def _measure(bench: Bench, plan: list[Stage], progress: Progress | None, limit_s: float) -> Measurement:
    started, page, load = bench.now(), Notebook(), busy()
    with preserved(bench.device.torch):
        run_stages(bench, plan, page, started + limit_s, progress)
        environment = bench.device.environment()
    return Measurement(
        environment=environment,
        entries=tuple(page.entries),
        curves=tuple(page.curves),
        skipped=tuple(page.skipped),
        notes=_notes(bench.device, load),
        duration_s=bench.now() - started,
    )


def run_stages(bench: Bench, plan: list[Stage], page: Notebook, end_s: float, progress: Progress | None = None) -> None:
    """Run each stage that still has time; one that fails, or has none, is written down as skipped."""
    for done, stage in enumerate(plan):
        if progress:
            progress(stage.name, done, len(plan))
        if bench.now() + stage.limit_s > end_s:
            page.write(Skipped(what=stage.name, why=f"less than {stage.limit_s:.0f} s of the minute was left"))
            continue
        try:
            stage.run(bench, page, min(end_s, bench.now() + stage.limit_s))
        except (RuntimeError, MemoryError, OSError, ValueError, GobrrrError) as error:
            page.write(Skipped(what=stage.name, why=first_line(error)))
    if progress:
        progress("done", len(plan), len(plan))


def _launch(bench: Bench, page: Notebook, _: float) -> None:
    if bench.device.is_cpu:
        page.write(Skipped(what="kernel launches", why="a CPU runs ops without launching kernels"))
    else:
        page.write(*host.measure_launch(bench))


def _curve(bench: Bench, page: Notebook, _: float) -> None:
    if bench.device.is_cpu:
        page.write(memory.last_cache())
    empty = next((one.amount.value for one in page.entries if one.name == "graph replay, device"), None)
    page.write(memory.measure_curve(bench, empty))


def _matmul(dtype: str) -> Callable[[Bench, Notebook, float], None]:
    return lambda bench, page, end_s: page.write(*matmul.measure_matmul(bench, dtype, end_s))


def _vector(dtype: str, kind: str) -> Callable[[Bench, Notebook, float], None]:
    return lambda bench, page, _: page.write(vector.measure_vector(bench, dtype, kind))


def _observer(bench: Bench, page: Notebook, end_s: float) -> None:
    page.write(*observer.measure_observer(bench, end_s))


def _reduce(bench: Bench, page: Notebook, end_s: float) -> None:
    page.write(links.measure_all_reduce(bench, end_s))


def busy() -> str | None:
    """A note where others compete for the processors: more is runnable than half of them."""
    if not hasattr(os, "getloadavg"):
        return None
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load < processors / 2:
        return None
    return f"the host was busy (load average {load:.1f} on {processors} processors): host and CPU figures are too low"


def _notes(device: Device, load: str | None) -> tuple[str, ...]:
    return (*((load,) if load else ()), *_caveats(device))


def _caveats(device: Device) -> tuple[str, ...]:
    if device.is_cpu:
        return (
            f"{device.torch.get_num_threads()} threads; the cache curve is one thread's",
            "bytes are the program's: a CPU that reads a line before it overwrites it moves more",
        )
    return ("clocks as the driver set them; nothing was locked",)
