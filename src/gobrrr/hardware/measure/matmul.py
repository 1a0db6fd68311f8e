"""Matmul FLOP/s of each dtype that the device takes, at sizes swept until the peak is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from gobrrr.hardware.measure.compiler import first_line
from gobrrr.hardware.measure.settings import tf32
from gobrrr.hardware.measure.stats import past_peak
from gobrrr.hardware.measure.timing import CallTimer
from gobrrr.model.measured import Curve, CurvePoint, MeasuredFigure, Quantity, Skipped

CPU_SIZES = (256, 512, 1024, 2048, 4096)
GPU_SIZES = (1024, 2048, 4096, 8192, 16384)
DTYPES = ("float32", "float64", "tf32", "bfloat16", "float16", "float8", "int8")
"""What most steps on a CPU need first: a machine that others use may have no time for the rest."""
NATIVE = {"float8": "float8_e4m3fn", "tf32": "float32"}
"""What torch calls the element type, where it is not the name itself."""
ITEM_BYTES = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}
FMA_FLOP = 2
SAMPLE_S = 0.15
"""Time for one size."""
CPU_LIMIT_S = 0.7
"""A size whose single call would take longer is not tried on a CPU."""

Found = tuple[MeasuredFigure | None, Curve | None, Skipped | None]


def measure_matmul(bench: CallTimer, dtype: str, deadline_s: float) -> Found:
    """The best rate of `dtype`, its curve by size, or why there is none."""
    torch = bench.device.torch
    if dtype == "tf32" and (reason := _no_tf32(bench)):
        return None, None, Skipped(what="matmul, tf32", why=reason)
    tf32(torch, dtype == "tf32")
    points: list[CurvePoint] = []
    for size in CPU_SIZES if bench.device.is_cpu else GPU_SIZES:
        if not _room(bench, dtype, size) or _too_slow(bench, points, size, deadline_s):
            break
        try:
            took = bench.time(multiplication(bench, dtype, size, size, size), budget_s=SAMPLE_S)
        except (RuntimeError, NotImplementedError, ValueError, AttributeError, TypeError) as error:
            if not points:
                return None, None, Skipped(what=f"matmul, {dtype}", why=first_line(error))
            break
        points.append(CurvePoint(x=float(size), y=took.rate(flop(size, size, size))))
        if past_peak([point.y.value for point in points]):
            break
    return _best(dtype, points)


def flop(m: int, k: int, n: int) -> float:
    """[m, k] x [k, n]: m * n dot products of k multiply-adds, 2 FLOP each."""
    return float(FMA_FLOP * m * k * n)


def _best(dtype: str, points: list[CurvePoint]) -> Found:
    if not points:
        return None, None, Skipped(what=f"matmul, {dtype}", why="no time or no memory was left for it", late=True)
    top = max(points, key=lambda point: point.y.value)
    best = max((point.y.best for point in points if point.y.best is not None), default=None)
    amount = structs.replace(top.y, best=best)
    entry = MeasuredFigure(group="matrix", name=dtype, unit="FLOP/s", amount=amount, at=f"n = {top.x:.0f}")
    curve = Curve(name=f"matmul, {dtype}", x_unit="n", y_unit="FLOP/s", points=tuple(points))
    return entry, curve, None


def _no_tf32(bench: CallTimer) -> str | None:
    torch = bench.device.torch
    if bench.device.is_cpu:
        return "a CPU has no TF32"
    if torch.version.hip is None and torch.cuda.get_device_capability(bench.device.index)[0] < 8:
        return "needs compute capability 8.0 or more"
    return None


def _room(bench: CallTimer, dtype: str, size: int) -> bool:
    """Two operands, a result of at most four bytes an element, and as much again for the library's workspace."""
    needed = size * size * (2 * ITEM_BYTES[dtype] + max(4, ITEM_BYTES[dtype]))
    return 2 * needed < bench.device.free_bytes()


def _too_slow(bench: CallTimer, points: list[CurvePoint], size: int, deadline_s: float) -> bool:
    """Whether the time is up, or one call at the last size's rate would take too long."""
    if not points:
        return bench.now() > deadline_s
    expected_s = flop(size, size, size) / points[-1].y.value
    return bench.now() + 6 * expected_s > deadline_s or (bench.device.is_cpu and expected_s > CPU_LIMIT_S)


def multiplication(bench: CallTimer, dtype: str, m: int, k: int, n: int) -> Callable[[], Any]:
    """A call that multiplies [m, k] by [k, n] random elements of `dtype`."""
    torch, spec = bench.device.torch, bench.device.spec
    native = getattr(torch, NATIVE.get(dtype, dtype))
    if dtype == "int8":
        a = torch.randint(-128, 128, (m, k), dtype=native, device=spec)
        b = torch.randint(-128, 128, (n, k), dtype=native, device=spec).t()
        return lambda: torch._int_mm(a, b)
    if dtype == "float8":
        a = torch.randn(m, k, device=spec).to(native)
        b = torch.randn(n, k, device=spec).to(native).t()  # the library wants the second operand by columns
        unit_scale = torch.ones((), device=spec)
        return lambda: torch._scaled_mm(
            a, b, scale_a=unit_scale, scale_b=unit_scale, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    a = torch.randn(m, k, device=spec, dtype=torch.float32).to(native)
    b = torch.randn(k, n, device=spec, dtype=torch.float32).to(native)
    out = torch.empty(m, n, device=spec, dtype=native)
    return lambda: torch.mm(a, b, out=out)


def rate(bench: CallTimer, dtype: str, m: int, k: int, n: int, *, budget_s: float = SAMPLE_S) -> Quantity:
    """FLOP/s of one multiplication; whatever torch raises for a dtype or shape that it refuses is raised."""
    tf32(bench.device.torch, dtype == "tf32")
    return bench.time(multiplication(bench, dtype, m, k, n), budget_s=budget_s).rate(flop(m, k, n))
