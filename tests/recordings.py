"""Recordings of steps written by hand, and a machine, shares and a host in round numbers. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gobrrr.hardware.dispatch import Dispatch, Hosts
from gobrrr.hardware.efficiency import Efficiency, Share
from gobrrr.model.machine import Ceiling, Machine
from gobrrr.model.recording import RecordedCall, Recording, Site
from gobrrr.model.work import OpCall, Scalar, Tensor

MATRIX_FLOP_PER_S, VECTOR_FLOP_PER_S, MEMORY_BYTES_PER_S = 1e15, 50e12, 2e12


def rows(*shape: int) -> tuple[int, ...]:
    """Strides of a tensor in row-major order."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def tensor(*shape: int, dtype: str = "bfloat16", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, rows(*shape) if strides is None else strides)


def mm(m: int, k: int, n: int, dtype: str = "bfloat16") -> OpCall:
    given = (tensor(m, k, dtype=dtype), tensor(k, n, dtype=dtype))
    return OpCall(name="aten::mm", inputs=given, outputs=(tensor(m, n, dtype=dtype),))


def add(*shape: int, dtype: str = "bfloat16") -> OpCall:
    one = tensor(*shape, dtype=dtype)
    return OpCall(name="aten::add", inputs=(one, one, Scalar("1")), outputs=(one,))


def relu(*shape: int, dtype: str = "bfloat16") -> OpCall:
    one = tensor(*shape, dtype=dtype)
    return OpCall(name="aten::relu", inputs=(one,), outputs=(one,))


def view(*shape: int) -> OpCall:
    one = tensor(*shape)
    return OpCall(name="aten::view", inputs=(one, Scalar(str(list(shape)))), outputs=(one,))


def item() -> OpCall:
    return OpCall(name="aten::_local_scalar_dense", inputs=(tensor(dtype="float32"),), outputs=())


def strange(*shape: int) -> OpCall:
    """An operation that no rule counts."""
    return OpCall(name="mylib::strange", inputs=(tensor(*shape),), outputs=(tensor(*shape),))


def recorded(call: OpCall, **more: Any) -> RecordedCall:
    return RecordedCall(call=call, phase=more.pop("phase", "forward"), site=more.pop("site", 0), **more)


def recording(calls: Sequence[OpCall | RecordedCall], **more: Any) -> Recording:
    """A step of these calls; those that are no RecordedCall yet are of the forward pass, on the device."""
    made = tuple(one if isinstance(one, RecordedCall) else recorded(one) for one in calls)
    known: dict[str, Any] = {
        "target": "step.py:step", "sites": (Site(),), "peak_bytes": 1 << 30, "start_bytes": 1 << 29,
        "module_calls": 0, "on_cpu": False,
    }  # fmt: skip
    return Recording(calls=made, **{**known, **more})


def ceiling(value: float, provenance: str = "datasheet") -> Ceiling:
    return Ceiling(value=value, provenance=provenance)


def machine(**more: Any) -> Machine:
    """1 PFLOP/s in bfloat16, 50 TFLOP/s of vectors, 2 TB/s, no cache that is known, 100 processors."""
    known: dict[str, Any] = {
        "name": "round",
        "matrix_flop_per_s": {"bfloat16": ceiling(MATRIX_FLOP_PER_S)},
        "vector_flop_per_s": {"float32": ceiling(VECTOR_FLOP_PER_S), "float64": ceiling(VECTOR_FLOP_PER_S / 2)},
        "memory_bytes_per_s": ceiling(MEMORY_BYTES_PER_S),
        "memory_bytes": ceiling(80e9),
        "processors": 100,
    }
    return Machine(**{**known, **more})


def share(**more: Any) -> Share:
    """Half of the ceilings, 2 us on top, one kernel."""
    known: dict[str, Any] = {"fixed_ns": 2000.0, "compute": 0.5, "memory": 0.5, "cached": 1.0, "spread": 0.2}
    return Share(**{**known, "points": 10, **more})


def stored(shares: dict[str, Share] | None = None, **more: Any) -> Efficiency:
    known: dict[str, Any] = {
        "device": "Round", "datasheet": "round", "date": "2026-01-01", "torch": "2.11", "command": "-",
        "least_ns": 1000.0, "measured_over_datasheet": {}, "step_spread": 0.1,
    }  # fmt: skip
    return Efficiency(shares={"": share(), **(shares or {})}, **{**known, **more})


def host(**more: float) -> Dispatch:
    known = {
        "forward_ns": 20_000.0, "view_ns": 1_000.0, "backward_ns": 30_000.0, "backward_view_ns": 7_000.0,
        "optimizer_ns": 5_000.0, "tensor_ns": 300.0, "fused_tensor_ns": 900.0, "module_ns": 4_000.0,
        "launch_ns": 6_000.0, "latency_ns": 3_000.0,
    }  # fmt: skip
    return Dispatch(**{**known, **more})


def hosts(**more: Any) -> Hosts:
    known: dict[str, Any] = {"middle": host(), "fast_factor": 0.5, "slow_factor": 2.0, "source": "a round host"}
    return Hosts(**{**known, **more})
