"""DRAM bandwidth of a copy, a read and a write, and bandwidth by working set: the cliff at each cache's size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gobrrr.hardware.bounds import CACHE_CURVE
from gobrrr.hardware.measure.timing import CallTimer
from gobrrr.model.measured import Curve, CurvePoint, MeasuredFigure, Quantity

GPU_BYTES, CPU_BYTES = 2**30, 2**28
"""Of one tensor: far beyond any cache."""
LARGEST_SHARE = 1 / 8
"""Of the memory that is free."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
GPU_CURVE = (2**20, 2**30)
CPU_CURVE = (2**13, 2**29)
ROW_SHIFT_BYTES = 64
LAUNCHES = 2
"""A kernel that takes less than this many times a replayed empty one measures launches, not memory."""


def tensor_bytes(bench: CallTimer) -> int:
    """Bytes of one tensor of the DRAM measurements: a power of two that leaves most of the memory free."""
    most = int(bench.device.free_bytes() * LARGEST_SHARE)
    wanted = CPU_BYTES if bench.device.is_cpu else GPU_BYTES
    return int(min(wanted, 2 ** max(20, most.bit_length() - 1)))


def measure_dram(bench: CallTimer, end_s: float = math.inf) -> list[MeasuredFigure]:
    """Copy and scale move a tensor's bytes twice, read and write once. Copy is always timed, each other before `end_s`.

    These are the program's bytes: a CPU that reads a line before it overwrites it moves half as many again.
    """
    torch, size = bench.device.torch, tensor_bytes(bench)
    x = torch.rand(size // 4, device=bench.device.spec)
    y = torch.empty_like(x)
    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "copy": (2, lambda: y.copy_(x)),
        "scale": (2, lambda: torch.mul(x, 2.0, out=y)),
        "read": (1, lambda: x.sum()),
        "write": (1, lambda: y.fill_(1.5)),
    }
    y.fill_(0.5)  # the pages exist before the clock runs
    at = f"{size / 2**20:.0f} MiB a tensor"
    return [
        MeasuredFigure(group="memory", name=name, unit="B/s", amount=bench.time(call).rate(float(times * size)), at=at)
        for name, (times, call) in calls.items()
        if name == "copy" or bench.now() < end_s
    ]


def last_cache(folder: Path = CACHES) -> MeasuredFigure | None:
    """The size of a CPU's last cache as the system reports it; None where it doesn't."""
    sizes_ = []
    for path in sorted(folder.glob("index*/size")):
        try:
            text = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        number, unit = text.rstrip("KMG"), text[-1:]
        if number.isdecimal():
            sizes_.append(int(number) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(unit, 1))
    if not sizes_:
        return None
    size = float(max(sizes_))
    amount = Quantity(value=size, low=size, high=size, runs=1)
    return MeasuredFigure(group="cache", name="last level", unit="B", amount=amount, at="as the system reports it")


def measure_curve(bench: CallTimer, empty_s: float | None, end_s: float = math.inf) -> Curve:
    """Copy bandwidth by working set (source and destination together), as far as the clock is before `end_s`."""
    return _cpu_curve(bench, end_s) if bench.device.is_cpu else _gpu_curve(bench, empty_s, end_s)


def sizes(first: int, last: int, steps_an_octave: int = 2) -> Iterator[int]:
    """Sizes from `first` to `last` in bytes, evenly in the logarithm, in whole cache lines."""
    step = 0
    while (size := int(first * 2 ** (step / steps_an_octave))) <= last:
        yield max(64, size // 64 * 64)
        step += 1


def _gpu_curve(bench: CallTimer, empty_s: float | None, end_s: float) -> Curve:
    """x * 2 replayed by a CUDA graph on the same tensors, so that what fits a cache stays there."""
    torch, points = bench.device.torch, []
    for working_set in sizes(GPU_CURVE[0], min(GPU_CURVE[1], int(bench.device.free_bytes() * LARGEST_SHARE))):
        if bench.now() >= end_s:
            break
        x = torch.rand(working_set // 8, device=bench.device.spec)
        y = torch.empty_like(x)
        took = bench.graph(lambda x=x, y=y: torch.mul(x, 2.0, out=y), budget_s=0.05)  # type: ignore[misc]
        if empty_s is None or took.value > LAUNCHES * empty_s:
            points.append(CurvePoint(x=float(working_set), y=took.rate(float(x.nbytes + y.nbytes))))
    note = "x * 2 in a replayed CUDA graph; sizes at which a kernel's own start-up counts are left out"
    return Curve(name=CACHE_CURVE, x_unit="B", y_unit="B/s", points=tuple(points), note=note)


def _cpu_curve(bench: CallTimer, end_s: float) -> Curve:
    """One thread: a core's own caches cannot be seen from two."""
    points = []
    for working_set in sizes(CPU_CURVE[0], min(CPU_CURVE[1], int(bench.device.free_bytes() * LARGEST_SHARE))):
        if bench.now() >= end_s:
            break
        half = working_set // 2 // 64 * 64
        rows = max(1, min(512, 2**20 // half))
        took = bench.host(repeated_copy(half, rows), budget_s=0.06)
        points.append(CurvePoint(x=float(2 * half), y=took.rate(float(2 * half * rows))))
    note = "a copy by one thread; the copy's own start-up counts at the smallest sizes"
    return Curve(name=CACHE_CURVE, x_unit="B", y_unit="B/s", points=tuple(points), note=note)


def repeated_copy(half: int, rows: int) -> Callable[[], None]:
    """A call that copies `half` bytes `rows` times, each a cache line further: one call of numpy, one working set."""
    room = half + rows * ROW_SHIFT_BYTES
    source = np.arange(room // 8, dtype=np.float64)
    target = np.ones_like(source)
    shape, strides = (rows, half // 8), (ROW_SHIFT_BYTES, 8)
    src, dst = (
        np.lib.stride_tricks.as_strided(array, shape, strides, writeable=array is target) for array in (source, target)
    )
    return lambda: np.copyto(dst, src)
