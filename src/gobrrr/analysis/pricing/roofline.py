"""The least time that a machine needs for a work, and the ceiling that determines it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gobrrr.model.machine import Ceiling, Machine
from gobrrr.model.work import Work

Bound = Literal["compute", "memory", "communication", "transfer"]
_MATRIX_AS = {"float8_e4m3fn": "float8", "float8_e5m2": "float8", "uint8": "int8", "qint8": "int8", "quint8": "int8"}
"""The type whose matrix peak counts for another type."""


@dataclass(frozen=True)
class Floor:
    """`ns`: the least time. `roof`: the name of the ceiling that it rests on.

    `in_cache`: the operands fit the last-level cache, so they may never touch DRAM. `least_ns`: the least time whatever
    the cache held before. A kernel below it contradicts the count or the ceiling; one between it and `ns` found
    operands in the cache. `at_most`: the ceiling is only a lower bound, so the true floor may be less, and no kernel
    contradicts this floor.
    """

    ns: float
    bound: Bound
    roof: str
    in_cache: bool = False
    least_ns: float = 0.0
    at_most: bool = False


def floor(work: Work, machine: Machine | None) -> Floor | None:
    """max(FLOPs / peak, bytes / bandwidth); None if the work, the machine or the ceiling that matters is unknown."""
    if machine is None or not work.known:
        return None
    if work.link == "network":
        return _over(work, machine.link_bytes_per_s, "communication", "device link")
    if work.link == "host":
        return _over(work, machine.host_bytes_per_s, "transfer", "host link")
    compute = _compute(work, machine)
    memory = _memory(work, machine)
    if compute is None or memory is None:
        return None
    return max(compute, memory, key=lambda side: side.ns)


def _over(work: Work, ceiling: Ceiling | None, bound: Bound, roof: str) -> Floor | None:
    if ceiling is None or work.bytes is None:
        return None
    ns = work.bytes / ceiling.value * 1e9
    return Floor(ns, bound, roof, least_ns=ns, at_most=bool(ceiling.at_least))


def _compute(work: Work, machine: Machine) -> Floor | None:
    """The slower of the matrix and the vector unit, which may run at the same time. Without FLOPs: a floor of 0."""
    units = []
    if work.matrix_flop:
        peak, roof = matrix_peak(machine, work.matrix_dtype)
        if peak is None:
            return None
        ns = work.matrix_flop / peak.value * 1e9
        units.append(Floor(ns, "compute", roof, least_ns=ns, at_most=bool(peak.at_least)))
    if work.vector_flop:
        dtype = vector_type(work)
        peak = machine.vector_flop_per_s.get(dtype)
        if peak is not None:
            ns = work.vector_flop / peak.value * 1e9
            units.append(Floor(ns, "compute", f"{dtype} vector", at_most=bool(peak.at_least)))
    return max(units, key=lambda unit: unit.ns, default=Floor(0.0, "compute", "none"))


def vector_type(work: Work) -> str:
    """The type whose vector peak counts for a work's FLOPs outside of contractions."""
    return "float64" if work.vector_dtype == "float64" else "float32"


def matrix_peak(machine: Machine, dtype: str | None) -> tuple[Ceiling | None, str]:
    """The peak for contractions in `dtype`, and its name; the vector unit's where no matrix unit supports the dtype."""
    key = _MATRIX_AS.get(dtype or "", dtype or "")
    if key.startswith("float8"):
        key = "float8"
    if key in ("complex64", "complex32"):
        key = "float32"
    peak = machine.matrix_flop_per_s.get(key)
    if peak is not None:
        return peak, f"{key} matrix"
    return machine.vector_flop_per_s.get(key), f"{key} vector"


def _memory(work: Work, machine: Machine) -> Floor | None:
    if work.bytes is None:
        return None
    dram, cache, size = machine.memory_bytes_per_s, machine.cache_bytes_per_s, machine.cache_bytes
    if dram is None:
        return None
    ns, bound = work.bytes / dram.value * 1e9, bool(dram.at_least)
    if size is None:
        return Floor(ns, "memory", "DRAM", least_ns=ns, at_most=bound)
    # at most one cache full of operands was already cached; it costs nothing where the cache's ceiling is unknown
    cached = min(work.bytes, size.value)
    fastest = machine.inner_cache_bytes_per_s or cache
    least = (work.bytes - cached) / dram.value * 1e9 + (cached / fastest.value * 1e9 if fastest is not None else 0.0)
    inner = fastest is not None and bool(fastest.at_least)
    if work.bytes <= size.value:
        cached_ns = cached / cache.value * 1e9 if cache is not None else ns
        cache_bound = bool(cache.at_least) if cache is not None else bound
        return Floor(cached_ns, "memory", "cache", in_cache=True, least_ns=least, at_most=inner or cache_bound)
    return Floor(ns, "memory", "DRAM", least_ns=least, at_most=inner or bound)


def joined(works: Sequence[Work], spared: float) -> Work:
    """Several works joined to one kernel, which moves `spared` bytes less."""
    matrix = next((work.matrix_dtype for work in works if work.matrix_flop), None)
    vector = next((work.vector_dtype for work in works if work.vector_flop), None)
    return Work(
        count="bounded",
        matrix_flop=sum(work.matrix_flop or 0.0 for work in works),
        matrix_dtype=matrix,
        vector_flop=sum(work.vector_flop or 0.0 for work in works),
        vector_dtype=vector,
        bytes_read=max(sum(work.bytes or 0.0 for work in works) - spared, 0.0),
    )
