"""From a measurement to a machine's ceilings, and beside the datasheet's: measured, quoted, ratio. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gobrrr import units
from gobrrr.errors import UnknownDeviceError
from gobrrr.hardware.bounds import CACHE_CURVE, CEILINGS, at_least, doubt, doubt_of_point, doubtful
from gobrrr.hardware.match import match_device
from gobrrr.model.machine import RECORDING_MODES, Ceiling, Machine, ObserverCosts, RecordingCost
from gobrrr.model.measured import MeasuredFigure, Measurement, Quantity

LAST_CACHE = "last level"
WIDEST_OBSERVER_SPREAD = 0.5
"""Where the quartiles are further apart than this share of the median, what the profiler adds is not known: it is a
small difference of times of a busy host. Chosen, not measured."""
HALF_PEAK_NOTE = "half of the fused multiply-add peak: one FLOP an instruction"
"""The note of a rate of multiplications alone."""


class CeilingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One figure beside the datasheet's; `datasheet` None: it gives none, or the device is not in the table.

    `at_least`: why the figure is only a lower bound of the ceiling; "" where it is what the device does.
    """

    group: str
    name: str
    unit: str
    amount: Quantity
    at: str = ""
    datasheet: Ceiling | None = None
    at_least: str = ""

    @property
    def value(self) -> float:
        """The figure that diagnoses use: the median of the repeats; of a lower bound the best of them."""
        return at_least(self.amount) if self.at_least else self.amount.value

    @property
    def ratio(self) -> float | None:
        """Measured over datasheet; None without a datasheet figure."""
        return self.value / self.datasheet.value if self.datasheet else None

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


def compare(measured: Measurement, datasheet: Machine | None) -> list[CeilingRow]:
    """Every entry of a measurement beside what the datasheet says of the same thing."""
    return [
        CeilingRow(
            group=entry.group,
            name=entry.name,
            unit=entry.unit,
            amount=entry.amount,
            at=entry.at,
            datasheet=_quoted(entry, measured, datasheet) if datasheet else None,
            at_least=doubt(measured, entry) if entry.group in CEILINGS else "",
        )
        for entry in measured.entries
    ]


def _quoted(entry: MeasuredFigure, measured: Measurement, sheet: Machine) -> Ceiling | None:
    if entry.group == "matrix":
        table = sheet.matrix_flop_per_s if _on_matrix_units(entry.name, measured, sheet) else sheet.vector_flop_per_s
        return table.get(entry.name)
    if entry.group == "vector":
        dtype, _, kind = entry.name.partition(" ")
        peak = sheet.vector_flop_per_s.get(dtype)
        if peak is None or kind == "fma":
            return peak
        return Ceiling(value=peak.value / 2, provenance="derived", source=f"{HALF_PEAK_NOTE} ({peak.source})")
    return {"memory": sheet.memory_bytes_per_s, "host": sheet.host_bytes_per_s}.get(entry.group)


def _on_matrix_units(dtype: str, measured: Measurement, sheet: Machine | None) -> bool:
    """A GPU's matmul in float32 or float64 runs on its vector units unless the datasheet names matrix units for it."""
    if dtype not in ("float32", "float64") or measured.environment.kind == "cpu":
        return True
    return sheet is not None and dtype in sheet.matrix_flop_per_s


def machine_of(measured: Measurement, datasheet: Machine | None = None) -> Machine:
    """The measured ceilings; those that were not measured are the datasheet's, or unknown.

    Where only a lower bound is known (`bounds.doubt`), the datasheet's ceiling is taken, and without one the bound.
    """
    base = datasheet or Machine(name=measured.environment.device_name)
    memory = [measured.entry("memory", name) for name in ("copy", "scale", "read")]
    link = [measured.entry("host", name) for name in ("to device, pinned", "to host, pinned")]
    found = {
        "memory_bytes_per_s": _ceiling(measured, base.memory_bytes_per_s, memory),
        "host_bytes_per_s": _ceiling(measured, base.host_bytes_per_s, link),
        **_caches(measured, base),
        "memory_bytes": _memory(measured, base),
    }
    return msgspec.structs.replace(
        base,
        device_name=measured.environment.device_name,
        matrix_flop_per_s={**base.matrix_flop_per_s, **_matrix(measured, base)},
        vector_flop_per_s={**base.vector_flop_per_s, **_vector(measured, base)},
        observer=_observer(measured, source_of(measured)) or base.observer,
        notes=(f"ceilings {source_of(measured)}", *_bounds(measured), *measured.notes, *base.notes),
        **{name: ceiling for name, ceiling in found.items() if ceiling is not None},
    )


def _observer(measured: Measurement, source: str) -> ObserverCosts | None:
    """What the profiler adds, by mode; a mode in which the cost of an operation varies too much is left out."""
    modes = {}
    for mode in RECORDING_MODES:
        found = {
            kind: measured.entry("observer", f"{kind}, {mode}") for kind in ("op", "runtime", "annotation", "python")
        }
        ns = {
            f"{kind}_ns": entry.amount.value * 1e9
            for kind, entry in found.items()
            if entry is not None and entry.amount.spread <= WIDEST_OBSERVER_SPREAD
        }
        if found["op"] is not None and "op_ns" in ns:
            modes[mode] = RecordingCost(spread=found["op"].amount.spread, **ns)
    return ObserverCosts(modes=modes, source=f"{source} (the profiler)") if modes else None


def _bounds(measured: Measurement) -> tuple[str, ...]:
    """A note on the ceilings that are only known from below."""
    names = ", ".join(f"{entry.group} {entry.name}" for entry in doubtful(measured))
    why = "the machine may do more than was measured, as others used it or the repeats differ"
    return (f"{why}: {names}",) if names else ()


def source_of(measured: Measurement, stage: str = "") -> str:
    """Where, when and with what: the source of each measured ceiling, or of those of one stage."""
    env, run = measured.environment, measured.stage(stage)
    date = (run.date if run is not None and run.date else env.date)[:10]
    parts = [f"measured on {env.device_name}", date, f"torch {env.torch}" if env.torch else ""]
    return ", ".join([*filter(None, parts), *([f"driver {env.driver}"] if env.driver else [])])


def _ceiling(measured: Measurement, quoted: Ceiling | None, entries: Sequence[MeasuredFigure | None]) -> Ceiling | None:
    """The largest figure. A figure in doubt counts with its best repeat, and only where no `quoted` one is above it."""
    found = [entry for entry in entries if entry is not None]
    steady = [entry for entry in found if not doubt(measured, entry)]
    top = max(steady, key=lambda entry: entry.amount.value, default=None)
    bound = max(
        (entry for entry in found if entry not in steady), key=lambda entry: at_least(entry.amount), default=None
    )
    if bound is not None and (top is None or at_least(bound.amount) > top.amount.value):
        value = at_least(bound.amount)
        if quoted is not None and quoted.value >= value:
            return None
        source = f"{_where(measured, bound)}, the best of {units.things(bound.amount.runs, 'repeat')}"
        return Ceiling(value=value, provenance="measured", source=source, at_least=doubt(measured, bound))
    return Ceiling(value=top.amount.value, provenance="measured", source=_where(measured, top)) if top else None


def _where(measured: Measurement, entry: MeasuredFigure) -> str:
    return f"{source_of(measured, entry.stage)} ({entry.group}, {entry.name}{f', {entry.at}' if entry.at else ''})"


def _matrix(measured: Measurement, base: Machine) -> dict[str, Ceiling]:
    entries = (
        entry for entry in measured.entries if entry.group == "matrix" and _on_matrix_units(entry.name, measured, base)
    )
    found = {entry.name: _ceiling(measured, base.matrix_flop_per_s.get(entry.name), [entry]) for entry in entries}
    return {name: ceiling for name, ceiling in found.items() if ceiling is not None}


def _vector(measured: Measurement, base: Machine) -> dict[str, Ceiling]:
    """Of each dtype the faster of the multiply-add chains and a matmul that runs on the same units."""
    found = {}
    for dtype in ("float32", "float64"):
        matmul = None if _on_matrix_units(dtype, measured, base) else measured.entry("matrix", dtype)
        entries = [measured.entry("vector", f"{dtype} fma"), matmul]
        if ceiling := _ceiling(measured, base.vector_flop_per_s.get(dtype), entries):
            found[dtype] = ceiling
    return found


def _caches(measured: Measurement, base: Machine) -> dict[str, Ceiling | None]:
    """The last cache's bandwidth from the curve: the best within it.

    A CPU's curve is measured with one thread: times the number of threads it is an upper bound. Its caches differ much.
    So the last cache's bandwidth is that of working sets over an eighth of its size, and the best of the whole curve is
    kept apart, as what no kernel exceeds.
    """
    quoted = base.cache_bytes_per_s
    if measured.environment.kind != "cpu":
        return {"cache_bytes_per_s": _cache(measured, quoted, base.cache_bytes, 0.0, 1)}
    entry = measured.entry("cache", LAST_CACHE)
    if entry is None:
        return {}
    reported = f"{source_of(measured, entry.stage)} (what the system reports)"
    size = Ceiling(value=entry.amount.value, provenance="measured", source=reported)
    threads = measured.environment.threads
    last = _cache(measured, quoted, size, size.value / 8, threads)
    return {
        "cache_bytes": size if last is not None else None,
        "cache_bytes_per_s": last,
        "inner_cache_bytes_per_s": _cache(measured, base.inner_cache_bytes_per_s, size, 0.0, threads),
    }


def _cache(
    measured: Measurement, quoted: Ceiling | None, size: Ceiling | None, least: float, threads: int
) -> Ceiling | None:
    """The best of the curve between `least` and `size` bytes, times the threads."""
    curve = measured.curve(CACHE_CURVE)
    if curve is None or size is None:
        return None
    inside = [point for point in curve.points if least < point.x <= size.value]
    best = max(inside, key=lambda point: point.y.value, default=None)
    if best is None:
        return None
    why = doubt_of_point(measured, curve, best.y)
    value = (max(at_least(point.y) for point in inside) if why else best.y.value) * threads
    if why and quoted is not None and quoted.value >= value:
        return None
    at = f"{curve.name}, {best.x / 2**20:.2g} MiB" + (f", times {threads} threads" if threads > 1 else "")
    how = "derived" if threads > 1 else "measured"
    return Ceiling(value=value, provenance=how, source=f"{source_of(measured, curve.stage)} ({at})", at_least=why)


def _memory(measured: Measurement, base: Machine) -> Ceiling | None:
    size = measured.environment.memory_bytes
    if base.memory_bytes is not None or size is None:
        return None
    reported = f"{source_of(measured)} (what the system reports)"
    return Ceiling(value=float(size), provenance="measured", source=reported)
