"""A machine's ceilings, each with where it comes from. None means that the ceiling is not known, never that it is 0."""

from __future__ import annotations

import msgspec


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling: `value` in FLOP/s, bytes/s, bytes or seconds, as the field that holds it says.

    `at_least`: why it is only a lower bound, as a clause; "" where it is the ceiling. A floor that rests on a lower
    bound is itself an upper bound.
    """

    value: float
    provenance: str  # "datasheet", "measured", "derived"
    source: str = ""
    at_least: str = ""


RECORDING_MODES = ("plain", "record_shapes", "with_stack", "record_shapes+with_stack")
"""The profiler's switches that change what recording costs, as a trace names those that were on."""


class RecordingCost(msgspec.Struct, frozen=True, kw_only=True):
    """What recording one event adds to the host's time, in ns, by kind of event; None: not known, never free.

    `runtime_ns` is that of a call of the device's runtime with the record of what it launches, `python_ns` that of one
    call of a Python or C function, which only stacks record. `spread`: distance of the quartiles of `op_ns` over its
    median, a share of one.
    """

    op_ns: float
    runtime_ns: float | None = None
    annotation_ns: float | None = None
    python_ns: float | None = None
    spread: float = 0.0


class ObserverCosts(msgspec.Struct, frozen=True, kw_only=True):
    """The profiler's cost on this machine by mode (`RECORDING_MODES`); a mode that is not there is not known."""

    modes: dict[str, RecordingCost]
    provenance: str = "measured"
    source: str = ""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Ceilings of one device.

    `matrix_flop_per_s` is dense, by dtype ("bfloat16", "float16", "tf32", "float8", "int8", "float64", "float4");
    `vector_flop_per_s` by dtype counts a fused multiply-add as 2. `memory_bytes_per_s` is DRAM, `link_bytes_per_s`
    device to device over all links, both directions summed as vendors print it; `host_bytes_per_s` one direction.
    """

    name: str
    device_name: str | None = None  # what the driver calls it, when it was matched from a trace
    vendor: str = ""
    architecture: str = ""
    matrix_flop_per_s: dict[str, Ceiling] = {}
    vector_flop_per_s: dict[str, Ceiling] = {}
    memory_bytes_per_s: Ceiling | None = None
    cache_bytes_per_s: Ceiling | None = None
    cache_bytes: Ceiling | None = None
    inner_cache_bytes_per_s: Ceiling | None = None  # of the caches before the last: what no kernel beats
    memory_bytes: Ceiling | None = None
    link_bytes_per_s: Ceiling | None = None
    host_bytes_per_s: Ceiling | None = None
    processors: int | None = None  # streaming multiprocessors or compute units
    observer: ObserverCosts | None = None  # what torch's profiler adds to the host's time
    notes: tuple[str, ...] = ()
