"""From a measurement to a machine's ceilings, and beside the datasheet's: measured, quoted, ratio. Pure."""

from __future__ import annotations

import msgspec

from gobrrr.errors import UnknownDeviceError
from gobrrr.hardware.match import match_device
from gobrrr.model.machine import RECORDING_MODES, Ceiling, Machine, ObserverCosts, RecordingCost
from gobrrr.model.measured import Curve, Entry, Measurement, Quantity

BANDWIDTH = "bandwidth by working set"
LAST = "last level"
RELIABLE = 0.25
"""An entry whose quartiles are further apart than this share of its median is shown, but is no ceiling."""
STEADY = 0.5
"""The same of what the profiler adds, which is a small difference of the times of a busy host."""
HALF = "half of the fused multiply-add peak: one FLOP an instruction"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure beside the datasheet's; `datasheet` None: it gives none, or the device is not in the table."""

    group: str
    name: str
    unit: str
    amount: Quantity
    at: str = ""
    datasheet: Ceiling | None = None

    @property
    def ratio(self) -> float | None:
        """Measured over datasheet; None without a datasheet figure."""
        return self.amount.value / self.datasheet.value if self.datasheet else None

    @property
    def above(self) -> bool:
        """Measured above the datasheet: one of the two is wrong, or the clock ran above the one it assumes."""
        return self.ratio is not None and self.ratio > 1


def datasheet_of(device_name: str | None, memory_bytes: int | None = None) -> Machine | None:
    """The datasheet row of a device, None where the table has none."""
    try:
        return match_device(device_name, memory_bytes).machine if device_name else None
    except UnknownDeviceError:
        return None


def compare(measured: Measurement, datasheet: Machine | None) -> list[Row]:
    """Every entry of a measurement beside what the datasheet says of the same thing."""
    return [
        Row(
            group=one.group,
            name=one.name,
            unit=one.unit,
            amount=one.amount,
            at=one.at,
            datasheet=_quoted(one, measured, datasheet) if datasheet else None,
        )
        for one in measured.entries
    ]


def _quoted(one: Entry, measured: Measurement, sheet: Machine) -> Ceiling | None:
    if one.group == "matrix":
        table = sheet.matrix_flop_per_s if _on_matrix_units(one.name, measured, sheet) else sheet.vector_flop_per_s
        return table.get(one.name)
    if one.group == "vector":
        dtype, _, kind = one.name.partition(" ")
        peak = sheet.vector_flop_per_s.get(dtype)
        if peak is None or kind == "fma":
            return peak
        return Ceiling(value=peak.value / 2, provenance="derived", source=f"{HALF} ({peak.source})")
    return {"memory": sheet.memory_bytes_per_s, "host": sheet.host_bytes_per_s}.get(one.group)


def _on_matrix_units(dtype: str, measured: Measurement, sheet: Machine | None) -> bool:
    """A GPU's matmul in float32 or float64 runs on its vector units unless the datasheet names matrix units for it."""
    if dtype not in ("float32", "float64") or measured.environment.kind == "cpu":
        return True
    return sheet is not None and dtype in sheet.matrix_flop_per_s


def machine_of(measured: Measurement, datasheet: Machine | None = None) -> Machine:
    """The measured ceilings; those that were not measured are the datasheet's, or unknown."""
    base = datasheet or Machine(name=measured.environment.device_name)
    source = source_of(measured)
    found = {
        "memory_bytes_per_s": _ceiling(measured.best("memory", "copy", "scale", "read"), source),
        "host_bytes_per_s": _ceiling(measured.best("host", "to device, pinned", "to host, pinned"), source),
        **_caches(measured, base.cache_bytes, source),
        "memory_bytes": _memory(measured, base, source),
    }
    return msgspec.structs.replace(
        base,
        device_name=measured.environment.device_name,
        matrix_flop_per_s={**base.matrix_flop_per_s, **_matrix(measured, datasheet, source)},
        vector_flop_per_s={**base.vector_flop_per_s, **_vector(measured, datasheet, source)},
        observer=_observer(measured, source) or base.observer,
        notes=(f"ceilings {source}", *_left_out(measured), *measured.notes, *base.notes),
        **{name: ceiling for name, ceiling in found.items() if ceiling is not None},
    )


def _observer(measured: Measurement, source: str) -> ObserverCosts | None:
    """What the profiler adds, by mode; a mode in which that of an operation is not known steadily is left out."""
    modes = {}
    for mode in RECORDING_MODES:
        found = {
            kind: measured.entry("observer", f"{kind}, {mode}") for kind in ("op", "runtime", "annotation", "python")
        }
        ns = {
            f"{kind}_ns": one.amount.value * 1e9
            for kind, one in found.items()
            if one is not None and one.amount.spread <= STEADY
        }
        if found["op"] is not None and "op_ns" in ns:
            modes[mode] = RecordingCost(spread=found["op"].amount.spread, **ns)
    return ObserverCosts(modes=modes, source=f"{source} (the profiler)") if modes else None


def _left_out(measured: Measurement) -> tuple[str, ...]:
    """A note on the ceilings that were measured too unsteadily to be used."""
    groups = ("matrix", "vector", "memory", "host")
    names = [
        f"{one.group} {one.name}" for one in measured.entries if one.group in groups and one.amount.spread > RELIABLE
    ]
    return (f"measured too unsteadily to be a ceiling: {', '.join(names)}",) if names else ()


def source_of(measured: Measurement) -> str:
    """Where, when and with what: the source of each measured ceiling."""
    env = measured.environment
    parts = [f"measured on {env.device_name}", env.date[:10], f"torch {env.torch}" if env.torch else ""]
    return ", ".join([*filter(None, parts), *([f"driver {env.driver}"] if env.driver else [])])


def _ceiling(entry: Entry | None, source: str) -> Ceiling | None:
    if entry is None or entry.amount.spread > RELIABLE:
        return None
    what = f"{entry.group}, {entry.name}" + (f", {entry.at}" if entry.at else "")
    return Ceiling(value=entry.amount.value, provenance="measured", source=f"{source} ({what})")


def _matrix(measured: Measurement, sheet: Machine | None, source: str) -> dict[str, Ceiling]:
    entries = (one for one in measured.entries if one.group == "matrix" and _on_matrix_units(one.name, measured, sheet))
    return {one.name: ceiling for one in entries if (ceiling := _ceiling(one, source))}


def _vector(measured: Measurement, sheet: Machine | None, source: str) -> dict[str, Ceiling]:
    """Of each dtype the faster of the multiply-add chains and a matmul that runs on the same units."""
    found = {}
    for dtype in ("float32", "float64"):
        chains, matmul = measured.entry("vector", f"{dtype} fma"), measured.entry("matrix", dtype)
        if matmul and _on_matrix_units(dtype, measured, sheet):
            matmul = None
        best = max((one for one in (chains, matmul) if one), key=lambda one: one.amount.value, default=None)
        if best and (ceiling := _ceiling(best, source)):
            found[dtype] = ceiling
    return found


def _caches(measured: Measurement, size: Ceiling | None, source: str) -> dict[str, Ceiling | None]:
    """The last cache's bandwidth from the curve: the best within it.

    A CPU's curve is one thread's: times the threads it bounds them all. Its caches differ by much, so that the last
    one's is that of working sets over an eighth of it, and the best of all is what no kernel beats.
    """
    curve = measured.curve(BANDWIDTH)
    if measured.environment.kind != "cpu":
        return {"cache_bytes_per_s": _cache(curve, size, 0.0, 1, source)}
    entry = measured.entry("cache", LAST)
    if entry is None:
        return {}
    size = Ceiling(value=entry.amount.value, provenance="measured", source=f"{source} (what the system reports)")
    threads = measured.environment.threads
    last = _cache(curve, size, size.value / 8, threads, source)
    return {
        "cache_bytes": size if last is not None else None,
        "cache_bytes_per_s": last,
        "inner_cache_bytes_per_s": _cache(curve, size, 0.0, threads, source),
    }


def _cache(curve: Curve | None, size: Ceiling | None, least: float, threads: int, source: str) -> Ceiling | None:
    """The best of the curve between `least` and `size` bytes, times the threads."""
    if curve is None or size is None:
        return None
    inside = [one for one in curve.points if least < one.x <= size.value]
    best = max(inside, key=lambda one: one.y.value, default=None)
    if best is None:
        return None
    at = f"{curve.name}, {best.x / 2**20:.2g} MiB" + (f", times {threads} threads" if threads > 1 else "")
    how = "derived" if threads > 1 else "measured"
    return Ceiling(value=best.y.value * threads, provenance=how, source=f"{source} ({at})")


def _memory(measured: Measurement, base: Machine, source: str) -> Ceiling | None:
    size = measured.environment.memory_bytes
    if base.memory_bytes is not None or size is None:
        return None
    return Ceiling(value=float(size), provenance="measured", source=f"{source} (what the system reports)")
