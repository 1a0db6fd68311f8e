"""The table's row for a card as a driver, a trace or a user names it, or a refusal: a wrong roof is worse than none.

A driver's name must match as a whole ("NVIDIA H200" is not "NVIDIA H200 NVL", a MIG slice is not its card). Properties
decide only for a device whose name says nothing ("", "AMD Radeon Graphics") or names an engineering board of a family
("NVIDIA A100-PG509-200"), and only when every row that fits has the same ceilings.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

import msgspec

from gobrrr.errors import UnknownDeviceError
from gobrrr.hardware.table import GIB, DatasheetRow, machine_of, rows
from gobrrr.model.machine import Machine

How = Literal["name", "properties"]

NAMELESS = re.compile(r"(AMD Radeon Graphics|(NVIDIA )?Graphics Device)?", re.IGNORECASE)
BOARD = re.compile(r"(?:NVIDIA )?([A-Z]+\d+)-P[GC]\d+-\d+", re.IGNORECASE)
"""Names that say nothing, and names of engineering boards with their family."""
SEPARATORS = re.compile(r"[\s_-]+")
"""Left out where short names are compared."""

REPORTED_MEMORY = (0.90, 1.01)
"""What drivers report of the nominal GiB: 0.985 on HBM, 1.0 on AMD, 0.92 on GDDR with ECC (1/16 goes to the code)."""

SAME_CARD = (0.90, 1.10)
"""Processors seen over processors of the row: the table's counts are in doubt by 3 %, a partition has half or less."""


class Properties(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says of a device besides its name; None where it says nothing."""

    memory_bytes: int | None = None
    compute: tuple[int, int] | None = None
    processors: int | None = None


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, whether its name or its properties decided, and what a reader must know about that."""

    machine: Machine
    how: How
    note: str = ""


def known() -> tuple[str, ...]:
    """The names of the table's rows; each is accepted by `find`."""
    return tuple(row.name for row in rows())


def find(name: str) -> Machine:
    """The machine of a driver's name ("NVIDIA H100 80GB HBM3") or a short one ("h100", "a100-80gb").

    Raises UnknownDeviceError, with the rows that the name could mean, when there is none or more than one.
    """
    match = match_device(name)
    if not match.note:
        return match.machine
    return msgspec.structs.replace(match.machine, notes=(match.note, *match.machine.notes))


def match_device(
    device_name: str | None,
    memory_bytes: int | None = None,
    compute: tuple[int, int] | None = None,
    processors: int | None = None,
) -> Match:
    """The row for a device, from its name and the properties that a trace records.

    `memory_bytes` is the driver's total, `compute` its capability, `processors` its SMs or CUs. Raises
    UnknownDeviceError when nothing matches, when several rows do, or when name and properties contradict each other.
    """
    name = (device_name or "").strip()
    seen = Properties(memory_bytes=memory_bytes, compute=compute, processors=processors)
    row = _by_driver_name(name)
    if row is not None:
        _refuse_contradiction(name, row, seen)
        return Match(machine=_named(row, name), how="name")
    row = _by_short_name(name, seen)
    if row is not None:
        _refuse_contradiction(name, row, seen)
        return Match(machine=machine_of(row), how="name", note=_reading(name, row))
    return _by_properties(name, seen)


def _named(row: DatasheetRow, device_name: str) -> Machine:
    return msgspec.structs.replace(machine_of(row), device_name=device_name or None)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], DatasheetRow], ...]:
    return tuple((re.compile(row.device_regex, re.IGNORECASE), row) for row in rows())


def _by_driver_name(name: str) -> DatasheetRow | None:
    return next((row for pattern, row in _patterns() if pattern.fullmatch(name)), None)


def _plain(name: str) -> str:
    return SEPARATORS.sub("", name.lower())


@cache
def _short_names() -> dict[str, DatasheetRow]:
    return {_plain(short): row for row in rows() for short in (row.name, *row.short_names.split("|"))}


def _by_short_name(name: str, seen: Properties) -> DatasheetRow | None:
    """The short name as it is, or with the memory that the driver reports ("a100" with 80 GiB: "a100-80gb")."""
    plain = _plain(name)
    row = _short_names().get(plain)
    if row is not None or seen.memory_bytes is None or not plain:
        return row
    sizes = {each.memory_gib for each in rows() if each.memory_gib and _fits_memory(each, seen)}
    found = [_short_names()[longer] for size in sizes if (longer := f"{plain}{size:g}gb") in _short_names()]
    return found[0] if len(found) == 1 else None


def _family(plain: str) -> tuple[str, ...]:
    """Rows whose name begins so: the candidates that a refusal lists."""
    return tuple(row.name for row in rows() if plain and _plain(row.name).startswith(plain))


def _reading(name: str, row: DatasheetRow) -> str:
    others = [other for other in _family(_plain(name)) if other != row.name]
    if not others or _plain(name) == _plain(row.name):
        return ""
    return f"{name!r} is read as {row.name}; there are also {', '.join(others)}"


def _by_properties(name: str, seen: Properties) -> Match:
    board = BOARD.fullmatch(name)
    if board is None and NAMELESS.fullmatch(name) is None:
        meant = _family(_plain(name))
        raise UnknownDeviceError(name, meant or known(), several=len(meant) > 1)
    family = _plain(board.group(1)) if board else ""
    fitting = [row for row in rows() if _plain(row.name).startswith(family) and _fits(row, seen)]
    if not fitting or any(row.by_properties != "yes" or not _same_ceilings(row, fitting[0]) for row in fitting):
        raise UnknownDeviceError(name, tuple(row.name for row in fitting) or known())
    row = _on_the_board(fitting)
    return Match(machine=_named(row, name), how="properties", note=_by_what(name, row, fitting, seen))


def _fits(row: DatasheetRow, seen: Properties) -> bool:
    """Memory and processors must both be given and both agree; the capability as well where it is given."""
    return seen.processors == row.processors and _fits_memory(row, seen) and seen.compute in (None, row.capability)


def _fits_memory(row: DatasheetRow, seen: Properties) -> bool:
    if seen.memory_bytes is None or row.memory_gib is None:
        return False
    low, high = REPORTED_MEMORY
    return low <= seen.memory_bytes / (row.memory_gib * GIB) <= high


def _same_ceilings(row: DatasheetRow, other: DatasheetRow) -> bool:
    """The same roof, whatever the board: peaks, bandwidth, caches and links; not power."""
    neutral = {"name": "", "notes": ()}
    return msgspec.structs.replace(machine_of(row), **neutral) == msgspec.structs.replace(machine_of(other), **neutral)


def _on_the_board(fitting: list[DatasheetRow]) -> DatasheetRow:
    """Of rows with the same ceilings, the module rather than the PCIe card: engineering boards are modules."""
    return next((row for row in fitting if row.form != "PCIe"), fitting[0])


def _by_what(name: str, row: DatasheetRow, fitting: list[DatasheetRow], seen: Properties) -> str:
    memory = (seen.memory_bytes or 0) / GIB
    shared = [other.name for other in fitting if other is not row]
    also = f" ({', '.join(shared)} has the same ceilings)" if shared else ""
    called = f"the driver calls it {name!r}" if name else "the driver gives no name"
    return f"{called}; matched to {row.name}{also} by {memory:.1f} GiB of memory and {seen.processors} processors"


def _refuse_contradiction(name: str, row: DatasheetRow, seen: Properties) -> None:
    """A slice of a card (MIG, AMD's partition modes) keeps the card's name but not its ceilings."""
    reason = _contradiction(row, seen)
    if reason:
        raise UnknownDeviceError(f"{name} ({reason})", known())


def _contradiction(row: DatasheetRow, seen: Properties) -> str | None:
    if seen.compute is not None and seen.compute != row.capability:
        return f"capability {seen.compute[0]}.{seen.compute[1]}, where {row.name} has {row.compute}"
    low, high = SAME_CARD
    if seen.processors is not None and not low <= seen.processors / row.processors <= high:
        return f"{seen.processors} processors, where {row.name} has {row.processors}: a partition?"
    if seen.memory_bytes is not None and row.memory_gib is not None and not _fits_memory(row, seen):
        return f"{seen.memory_bytes / GIB:.1f} GiB, where {row.name} has {row.memory_gib:g}: a partition?"
    return None
