"""A machine's ceilings, each with its provenance. None: the ceiling is not known, which never means 0."""

from __future__ import annotations

import msgspec


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling. `value`: in FLOP/s, bytes/s, bytes or seconds, as its field in `Machine` says.

    `at_least`: why the value is only a lower bound, as a clause; "" where it is the ceiling. A floor that rests on a
    lower bound is itself an upper bound.
    """

    value: float
    provenance: str  # "datasheet", "measured", "derived"
    source: str = ""
    at_least: str = ""


RECORDING_MODES = ("plain", "record_shapes", "with_stack", "record_shapes+with_stack")
"""The profiler's switches that change what recording costs, as a trace names those that were on."""


class RecordingCost(msgspec.Struct, frozen=True, kw_only=True):
    """Host time in ns that recording one event adds, by kind of event; None: not known, which never means free.

    `runtime_ns`: for a call of the device's runtime, including the record of what it launches. `python_ns`: for a call
    of a Python or C function, which only stacks record. `spread`: the interquartile range of `op_ns` over its median.
    """

    op_ns: float
    runtime_ns: float | None = None
    annotation_ns: float | None = None
    python_ns: float | None = None
    spread: float = 0.0


class ObserverCosts(msgspec.Struct, frozen=True, kw_only=True):
    """The profiler's cost on this machine by mode (`RECORDING_MODES`); missing modes are not known."""

    modes: dict[str, RecordingCost]
    provenance: str = "measured"
    source: str = ""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The ceilings of one device.

    `matrix_flop_per_s`: dense, by dtype ("bfloat16", "float16", "tf32", "float8", "int8", "float64", "float4");
    `vector_flop_per_s`: by dtype, a fused multiply-add counts as 2. `memory_bytes_per_s`: DRAM; `link_bytes_per_s`:
    device to device over all links, both directions summed as vendors print it; `host_bytes_per_s`: one direction.
    """

    name: str
    device_name: str | None = None  # the driver's name, where it was matched from a trace
    vendor: str = ""
    architecture: str = ""
    matrix_flop_per_s: dict[str, Ceiling] = {}
    vector_flop_per_s: dict[str, Ceiling] = {}
    memory_bytes_per_s: Ceiling | None = None
    cache_bytes_per_s: Ceiling | None = None
    cache_bytes: Ceiling | None = None
    inner_cache_bytes_per_s: Ceiling | None = None  # of the caches before the last: no kernel is faster
    memory_bytes: Ceiling | None = None
    link_bytes_per_s: Ceiling | None = None
    host_bytes_per_s: Ceiling | None = None
    processors: int | None = None  # streaming multiprocessors or compute units
    observer: ObserverCosts | None = None  # host time that torch's profiler adds
    notes: tuple[str, ...] = ()
