"""One machine's row beside others: what a step takes there, and what its budget says."""

from __future__ import annotations

from gobrrr.model.diagnosis import ChangedOp, Diagnosis, MachineRow
from gobrrr.model.machine import Machine


def machine_row(
    found: Diagnosis,
    machine: Machine,
    *,
    device_ns: float,
    host_ns: float,
    peak_bytes: float | None,
    changed: list[ChangedOp],
    times: tuple[float, float, float],
) -> MachineRow:
    """The row of a step that `found` diagnoses on `machine`.

    `times`: its expected time, low and high end, where the diagnosis has none. `peak_bytes` None: not known.
    """
    wall, memory = found.unprofiled_wall_ns, machine.memory_bytes
    step, low, high = times
    return MachineRow(
        machine=machine.name,
        step_ns=wall.value or step,
        low_ns=wall.low or low,
        high_ns=wall.high or high,
        device_ns=device_ns,
        host_ns=host_ns,
        regime=found.regime,
        compute_share=side_share(found, "compute"),
        memory_share=side_share(found, "memory"),
        overhead_share=side_share(found, "overhead"),
        speed_of_light_ns=found.speed_of_light_ns,
        fits=None if memory is None or peak_bytes is None else peak_bytes <= memory.value,
        ridge_flop_per_byte=_ridge(machine),
        step_flop_per_byte=_intensity(found),
        ceilings=ceilings_of(machine),
        changed=changed,
    )


def side_share(found: Diagnosis, side: str) -> float:
    """The share of a side in the budget: its line, and what is below its roof."""
    return sum(
        line.share for line in found.budget if line.line == side or (line.line, line.cause) == ("below_roof", side)
    )


def _ridge(machine: Machine) -> float | None:
    peak = machine.matrix_flop_per_s.get("bfloat16") or machine.matrix_flop_per_s.get("float16")
    if peak is None or machine.memory_bytes_per_s is None:
        return None
    return peak.value / machine.memory_bytes_per_s.value


def _intensity(found: Diagnosis) -> float | None:
    flop, moved = found.totals.flop, found.totals.bytes_as_run
    return flop / moved if flop and moved else None


def ceilings_of(machine: Machine) -> str:
    """Where a machine's ceilings come from."""
    measured = machine.memory_bytes_per_s is not None and machine.memory_bytes_per_s.provenance == "measured"
    return "measured" if measured else "datasheet"
