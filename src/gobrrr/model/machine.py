"""A machine's ceilings, each with where it comes from. None means that the ceiling is not known, never that it is 0."""

from __future__ import annotations

import msgspec


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling: `value` in FLOP/s, bytes/s, bytes or seconds, as the field that holds it says."""

    value: float
    provenance: str  # "datasheet", "measured", "derived"
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
    notes: tuple[str, ...] = ()
