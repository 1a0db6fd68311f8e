"""Measurements that are kept: one JSON file a device, driver and torch, in the user's cache folder.

`$XDG_CACHE_HOME/gobrrr/machines`, else `~/.cache/gobrrr/machines`. A file is written whole or not at all. One that
can't be read is left out with a note; it never stops a diagnosis.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from gobrrr.errors import UsageError
from gobrrr.hardware.bounds import merged
from gobrrr.hardware.ceilings import datasheet_of, machine_of
from gobrrr.model.machine import Machine
from gobrrr.model.measured import FORMAT, Environment, Measurement
from gobrrr.system import files
from gobrrr.system.paths import without_home


class KeptMachine(NamedTuple):
    """What the cache holds for a device, and what a reader must know about it."""

    machine: Machine | None
    notes: tuple[str, ...] = ()


def folder() -> Path:
    """Where the measurements are; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "gobrrr" / "machines"


def path_of(environment: Environment, where: Path | None = None) -> Path:
    """The file of one device, driver and torch."""
    key = "\n".join((environment.device_name, environment.driver or "", environment.torch))
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:12]
    return (where or folder()) / f"{_slug(environment.device_name)}-{digest}.json"


def save(measured: Measurement, where: Path | None = None) -> Path:
    """Write a measurement over an older one of the same device, driver and torch; returns the file's path.

    Raises UsageError when the folder can't be written.
    """
    path = path_of(measured.environment, where)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
    except OSError as error:
        raise UsageError(f"{path}: the measurement can't be kept: {error.strerror or error}") from None
    return path


def keep(measured: Measurement, where: Path | None = None) -> Measurement:
    """Save a measurement `with_older`; what is kept then. Raises UsageError as `save`."""
    kept = with_older(measured, where)
    save(kept, where)
    return kept


def with_older(measured: Measurement, where: Path | None = None) -> Measurement:
    """A measurement with what a kept one of the same device, driver and torch knows better.

    So a machine that is busy today doesn't take away what was measured when it was quiet.
    """
    older = like(measured.environment, where)
    return merged(older, measured) if older is not None and older.stages else measured


def like(environment: Environment, where: Path | None = None) -> Measurement | None:
    """The kept measurement of just this device, driver and torch; None where there is none that can be read."""
    try:
        return decode(files.read(path_of(environment, where)))
    except (OSError, ValueError):
        return None


def load_measured(device_name: str | None, where: Path | None = None) -> Machine | None:
    """The ceilings measured on a device of exactly this name, None where there are none (`look_up` says why)."""
    return look_up(device_name, where).machine


def look_up(device_name: str | None, where: Path | None = None) -> KeptMachine:
    """The newest measurement of a device as a machine, with notes: which one it is, and files that were ignored."""
    measured, ignored = newest(device_name, where)
    if measured is None:
        return KeptMachine(None, ignored)
    env = measured.environment
    machine = machine_of(measured, datasheet_of(env.device_name, env.memory_bytes))
    return KeptMachine(machine, (f"least times use {machine.notes[0]} (gobrrr machine)", *ignored))


def measured_as(name: str, where: Path | None = None) -> Measurement | None:
    """The newest measurement of a device whose datasheet row is called `name`; None where there is none."""
    found = []
    for measurement in _read(where or folder(), "")[0]:
        sheet = datasheet_of(measurement.environment.device_name, measurement.environment.memory_bytes)
        if sheet is not None and sheet.name == name:
            found.append(measurement)
    return max(found, key=lambda measurement: measurement.environment.date, default=None)


def newest(device_name: str | None, where: Path | None = None) -> tuple[Measurement | None, tuple[str, ...]]:
    """The newest measurement of a device, and a note for each file of its name that can't be read."""
    if not device_name:
        return None, ()
    read, ignored = _read(where or folder(), f"{_slug(device_name)}-")
    found = [measurement for measurement in read if measurement.environment.device_name == device_name]
    return max(found, key=lambda measurement: measurement.environment.date, default=None), tuple(ignored)


def _read(where: Path, begin: str) -> tuple[list[Measurement], list[str]]:
    """The measurements in files whose names begin so, and a note for each that is none."""
    try:
        paths = files.listed(where, begin, ".json")
    except OSError as error:
        return [], [f"no kept measurement was read ({without_home(str(where))}: {_reason(error)})"]
    found, ignored = [], []
    for path in paths:
        try:
            found.append(decode(files.read(path)))
        except (OSError, ValueError) as error:
            ignored.append(
                f"a kept measurement was ignored ({path.name}: {_reason(error)}); gobrrr machine makes it anew"
            )
    return found, ignored


def decode(data: bytes) -> Measurement:
    """A measurement from its JSON. Raises ValueError when it is none, or of a format that is not this one's."""
    measurement = msgspec.json.decode(data, type=Measurement)
    if measurement.format != FORMAT:
        raise ValueError(f"format {measurement.format}, this gobrrr reads {FORMAT}")
    for entry in measurement.entries:
        if not 0 < entry.amount.value < float("inf"):
            raise ValueError(f"{entry.group}, {entry.name} is {entry.amount.value}")
    return measurement


def _slug(name: str) -> str:
    """The name in what every file system takes; two names with one slug are told apart by the digest and the record."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "device"


def _reason(error: Exception) -> str:
    said = getattr(error, "strerror", None) or str(error)
    return (said.splitlines() or [type(error).__name__])[0][:80]
