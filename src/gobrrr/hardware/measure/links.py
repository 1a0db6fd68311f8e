"""The link between host and device, pinned and pageable, both ways; and between devices, an all-reduce by size."""

from __future__ import annotations

from typing import Any

from gobrrr.hardware.measure.compiler import first_line
from gobrrr.hardware.measure.timing import CallTimer
from gobrrr.model.measured import Curve, CurvePoint, MeasuredFigure, Quantity, Skipped

LINK_BYTES = 2**28
"""Of one copy over the host link: so large that starting it takes no time beside it."""
REDUCE_BYTES = tuple(2**power for power in range(12, 31, 2))
"""Messages of the all-reduce, 4 KiB to 1 GiB."""


def measure_host_link(bench: CallTimer) -> list[MeasuredFigure | Skipped]:
    """Bytes a second of one copy, alone on the link."""
    if bench.device.is_cpu:
        return [Skipped(what="host-device links", why="the host is the device")]
    torch, found = bench.device.torch, []
    for pinned in (True, False):
        try:
            found += _both_ways(bench, torch.ones(LINK_BYTES, dtype=torch.uint8, pin_memory=pinned), pinned)
        except RuntimeError as error:
            found.append(Skipped(what=f"host links, {'pinned' if pinned else 'pageable'}", why=first_line(error)))
    return found


def _both_ways(bench: CallTimer, host: Any, pinned: bool) -> list[MeasuredFigure | Skipped]:
    device = bench.device.torch.empty_like(host, device=bench.device.spec, pin_memory=False)
    kind, at = "pinned" if pinned else "pageable", f"{LINK_BYTES / 2**20:.0f} MiB"
    # A pageable copy keeps the host, which feeds it: its time is the host's. A pinned one is the device's alone.
    time = (lambda call: bench.time(call, cold=False)) if pinned else bench.host
    to, back = (
        time(lambda: device.copy_(host, non_blocking=True)),
        time(lambda: host.copy_(device, non_blocking=pinned)),
    )
    ways: tuple[tuple[str, Quantity], ...] = ((f"to device, {kind}", to), (f"to host, {kind}", back))
    return [
        MeasuredFigure(group="host", name=name, unit="B/s", amount=took.rate(float(LINK_BYTES)), at=at)
        for name, took in ways
    ]


def measure_all_reduce(bench: CallTimer, deadline_s: float) -> Curve | Skipped:
    """Bus bandwidth of an all-reduce over all GPUs from one process, by bytes a GPU.

    A ring moves 2 (n - 1) / n of the message over each link: that share of the bytes, a second, is the bus bandwidth.
    """
    what = "all-reduce"
    if bench.device.is_cpu:
        return Skipped(what=what, why="the device is the CPU")
    torch, count = bench.device.torch, bench.device.torch.cuda.device_count()
    if count < 2:
        return Skipped(what=what, why="there is one GPU")
    try:
        from torch.cuda import nccl

        points = [_reduce(bench, nccl, count, size) for size in REDUCE_BYTES if _fits(bench, size, deadline_s)]
    except (ImportError, RuntimeError) as error:
        return Skipped(what=what, why=first_line(error))
    finally:
        for index in range(count):
            torch.cuda.synchronize(index)
    if not points:
        return Skipped(what=what, why="no message fitted into the time or the memory that was left")
    note = f"{count} GPUs, float32, NCCL from one process"
    return Curve(name="all-reduce bus bandwidth", x_unit="B", y_unit="B/s", points=tuple(points), note=note)


def _fits(bench: CallTimer, size: int, deadline_s: float) -> bool:
    return bench.now() < deadline_s and 4 * size < bench.device.free_bytes()


def _reduce(bench: CallTimer, nccl: Any, count: int, size: int) -> CurvePoint:
    torch = bench.device.torch
    parts = [torch.rand(size // 4, device=f"cuda:{index}") for index in range(count)]
    outs = [torch.empty_like(part) for part in parts]
    took = bench.time(lambda: nccl.all_reduce(parts, outs), budget_s=0.2, cold=False)
    return CurvePoint(x=float(size), y=took.rate(2 * (count - 1) / count * size))
