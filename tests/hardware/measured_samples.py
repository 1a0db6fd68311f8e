"""Measurements for tests: an H100's figures of the shipped article.json, and what a test changes."""

from __future__ import annotations

from gobrrr.model.measured import Curve, CurvePoint, Environment, MeasuredFigure, Measurement, Quantity, Skipped

H100 = "NVIDIA H100 80GB HBM3"


def quantity(value: float, spread: float = 0.01) -> Quantity:
    return Quantity(value=value, low=value * (1 - spread / 2), high=value * (1 + spread / 2), runs=20)


def entry(group: str, name: str, value: float, unit: str = "FLOP/s", spread: float = 0.01) -> MeasuredFigure:
    return MeasuredFigure(group=group, name=name, unit=unit, amount=quantity(value, spread), at="n = 8192")


def environment(name: str = H100, kind: str = "cuda", date: str = "2026-01-02T03:04:05+00:00") -> Environment:
    return Environment(
        device_name=name, kind=kind, driver="580.95", torch="2.11.0", compiler="Triton 3.6.0", python="3.12", date=date
    )


def h100(**changes: object) -> Measurement:
    entries = (
        entry("matrix", "bfloat16", 729e12),
        entry("matrix", "float32", 51.6e12),
        entry("matrix", "float64", 54.2e12),
        entry("vector", "float32 fma", 60e12),
        entry("vector", "float32 multiply", 32e12),
        entry("memory", "copy", 3.02e12, "B/s"),
        entry("memory", "read", 3.06e12, "B/s"),
        entry("memory", "write", 3.4e12, "B/s"),
        entry("host", "to device, pinned", 55e9, "B/s"),
        entry("dispatch", "add", 12e-6, "s"),
    )
    points = tuple(CurvePoint(x=x, y=quantity(y)) for x, y in ((2**22, 4e12), (2**25, 5.5e12), (2**28, 3e12)))
    fields: dict[str, object] = {
        "environment": environment(),
        "entries": entries,
        "curves": (Curve(name="bandwidth by working set", x_unit="B", y_unit="B/s", points=points),),
        "skipped": (Skipped(what="all-reduce", why="there is one GPU"),),
        "duration_s": 41.0,
        **changes,
    }
    return Measurement(**fields)  # type: ignore[arg-type]
