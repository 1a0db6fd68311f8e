"""One machine's row in a comparison of machines: the time of a step there, and its budget."""

from __future__ import annotations

from gobrrr.model.diagnosis import ChangedOp, Diagnosis, MachineRow
from gobrrr.model.machine import Machine


def machine_row(
    diagnosis: Diagnosis,
    machine: Machine,
    *,
    device_ns: float,
    host_ns: float,
    peak_bytes: float | None,
    changed: list[ChangedOp],
    times: tuple[float, float, float],
) -> MachineRow:
    """The row of the step that `diagnosis` describes on `machine`.

    `times`: its expected time with the low and the high end, where the diagnosis has none. `peak_bytes`: None where it
    is not known.
    """
    wall, memory = diagnosis.unprofiled_wall_ns, machine.memory_bytes
    step, low, high = times
    return MachineRow(
        machine=machine.name,
        step_ns=wall.value or step,
        low_ns=wall.low or low,
        high_ns=wall.high or high,
        device_ns=device_ns,
        host_ns=host_ns,
        regime=diagnosis.regime,
        compute_share=side_share(diagnosis, "compute"),
        memory_share=side_share(diagnosis, "memory"),
        overhead_share=side_share(diagnosis, "overhead"),
        speed_of_light_ns=diagnosis.speed_of_light_ns,
        fits=None if memory is None or peak_bytes is None else peak_bytes <= memory.value,
        ridge_flop_per_byte=_ridge(machine),
        step_flop_per_byte=_intensity(diagnosis),
        ceilings=ceilings_of(machine),
        changed=changed,
    )


def side_share(diagnosis: Diagnosis, side: str) -> float:
    """The budget's share of a side: its own line, and the time below its roof."""
    return sum(
        line.share for line in diagnosis.budget if line.line == side or (line.line, line.cause) == ("below_roof", side)
    )


def _ridge(machine: Machine) -> float | None:
    peak = machine.matrix_flop_per_s.get("bfloat16") or machine.matrix_flop_per_s.get("float16")
    if peak is None or machine.memory_bytes_per_s is None:
        return None
    return peak.value / machine.memory_bytes_per_s.value


def _intensity(diagnosis: Diagnosis) -> float | None:
    flop, moved = diagnosis.totals.flop, diagnosis.totals.bytes_as_run
    return flop / moved if flop and moved else None


def ceilings_of(machine: Machine) -> str:
    """Where a machine's ceilings come from: "measured" or "datasheet"."""
    measured = machine.memory_bytes_per_s is not None and machine.memory_bytes_per_s.provenance == "measured"
    return "measured" if measured else "datasheet"
