"""A diagnosis to and from JSON (format 1)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.errors import InputError
from gobrrr.model.diagnosis import FORMAT, Diagnosis
from gobrrr.model.soundness import fault
from gobrrr.report.text import sanitise
from gobrrr.system import files
from gobrrr.system.paths import bytes_without_home


def to_json(diagnosis: Diagnosis) -> bytes:
    """The JSON, indented, with a newline at the end and without the user's home folder in paths.

    JSON has no NaN and no infinity: they become null ("not known") where None is allowed. Raises ValueError if they
    stand in a field that must be a number.
    """
    try:
        data = msgspec.json.encode(diagnosis, enc_hook=plain_number)
    except UnicodeEncodeError:  # a lone surrogate, from a file name that is not UTF-8
        data = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(diagnosis, enc_hook=plain_number)))
    try:
        same = msgspec.json.decode(data, type=Diagnosis)
    except msgspec.ValidationError as error:
        raise ValueError(f"the diagnosis can't be written: {error}") from None
    return bytes_without_home(msgspec.json.format(msgspec.json.encode(same), indent=2)) + b"\n"


def plain_number(value: Any) -> Any:
    """A numpy scalar as a Python number: msgspec's hook. Raises NotImplementedError for other types."""
    if hasattr(value, "item"):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value


def save(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write the diagnosis to `path`, atomically.

    Raises UsageError if the folder is missing or can't be written.
    """
    files.check_writable(path)
    files.write(path, to_json(diagnosis))


def load(path: str | os.PathLike[str]) -> Diagnosis:
    """Read a diagnosis that `save` or `--json` wrote.

    Raises InputError, in one line, if the file can't be read, has a newer format, or is not a sound diagnosis.
    """
    name = _shown(Path(path))
    try:
        data = _content(Path(path))
    except FileNotFoundError:
        raise InputError(f"{name}: no such file; write one with: gobrrr diagnose TARGET --save {name}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    found = decode(data, name)
    if (wrong := fault(found)) is not None:
        raise InputError(f"{name}: a damaged diagnosis: {sanitise(wrong)}")
    return found


def _content(path: Path) -> bytes:
    if not path.is_fifo():
        return path.read_bytes()
    from gobrrr.observe.source import open_target

    with open_target(str(path)) as stream:  # does not hang if nothing writes to it
        return stream.read()


class _Probe(msgspec.Struct):
    """The keys that distinguish a diagnosis from other JSON."""

    format: Any = None
    regime: Any = None
    traceEvents: msgspec.Raw = msgspec.Raw()  # the profiler's own key


def decode(data: bytes, name: str = "the data") -> Diagnosis:
    """A diagnosis from its JSON; `name` is what an error calls it. Raises InputError."""
    try:
        probe = msgspec.json.decode(data, type=_Probe)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        hint = "; a profiler trace is read with: gobrrr diagnose" if data[:2] == b"\x1f\x8b" else ""
        raise InputError(f"{name}: not a saved diagnosis (not a JSON object){hint}") from None
    _check(probe, name)
    try:
        return msgspec.json.decode(data, type=Diagnosis)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{name}: a damaged diagnosis: {sanitise(str(error))}") from None


def _check(probe: _Probe, name: str) -> None:
    if bytes(probe.traceEvents):
        raise InputError(f"{name}: a profiler trace, not a saved diagnosis; read it with: gobrrr diagnose {name}")
    if not isinstance(probe.format, int) or probe.regime is None:
        raise InputError(f"{name}: not a saved diagnosis (no format and regime in it)")
    if probe.format > FORMAT:
        raise InputError(f"{name}: format {probe.format}, but this version of gobrrr reads {FORMAT}: update gobrrr")
    if probe.format < 1:
        raise InputError(f"{name}: format {probe.format} does not exist")


def _shown(path: Path) -> str:
    return sanitise(str(path))
