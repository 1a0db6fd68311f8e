"""What a trace file says of itself, from the JSON around its events."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gobrrr.model.profile import DeviceProperties, TraceMeta
from gobrrr.observe.numbers import integer
from gobrrr.observe.scan import STRICT_FAULTS

_SWITCHES = ("record_shapes", "with_stack", "with_modules", "with_flops", "profile_memory")
REPLAYED = "replayed"
"""Among what was recorded: the file is a replayed timeline that gobrrr wrote."""

_VERSIONS = ("cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "cupti_version", "roctracer_version")
_RANK_IN_NAME = re.compile(r"(?:rank|worker)[_\-.]?(\d{1,9})(?!\d)", re.IGNORECASE)
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_LIST = re.compile(rb"[\s\0]*\[\s*\{")
_IN_TEXT = r"['\"]{}['\"]\s*:\s*(\d+)"


def read_meta(source: str, prefix: bytes, suffix: bytes, notes: list[str]) -> TraceMeta:
    """The metadata of one file; what can't be read is absent, with a note.

    `prefix` ends with the opening bracket of the events, `suffix` starts behind their closing one. `origin_ns` is what
    the file says that its own zero is (`baseTimeNanoseconds`), or 0.
    """
    fields = _around(prefix, suffix, notes)
    rank, world = _ranks(fields.get("distributedInfo"))
    named = _RANK_IN_NAME.search(re.split(r"[/\\]", source)[-1])
    if rank < 0:
        rank = int(named.group(1)) if named else 0
    return TraceMeta(
        source=source,
        rank=rank,
        world_size=world if world > 0 else None,
        devices=_devices(fields.get("deviceProperties"), notes),
        recorded=frozenset([*(key for key in _SWITCHES if fields.get(key)), *_replayed(fields, notes)]),
        versions={key: str(value) for key in _VERSIONS if isinstance(value := fields.get(key), str | int | float)},
        origin_ns=max(0, integer(fields.get("baseTimeNanoseconds"))),
    )


def holds_another(prefix: bytes, suffix: bytes) -> bool:
    """Whether another trace follows behind the first one of a file: an object with events, or a list of them."""
    if not prefix:
        return _LIST.match(suffix) is not None
    return _EVENTS.search(suffix) is not None and _object(b'{"traceEvents": []' + suffix) is None


def _replayed(fields: dict[str, Any], notes: list[str]) -> list[str]:
    """Whether gobrrr itself wrote the file: then no profiler slowed its host down."""
    if not isinstance(fields.get("gobrrr"), dict):
        return []
    notes.append("a timeline that gobrrr replayed: estimated, not recorded; nothing is taken out of its host's time")
    return [REPLAYED]


def _around(prefix: bytes, suffix: bytes, notes: list[str]) -> dict[str, Any]:
    before = _object(prefix + b"]}") if prefix else {}
    if before is None:
        notes.append("what stands before the events is no JSON: device, rank and versions may be unknown")
    after: dict[str, Any] | None = {}
    if suffix.strip(b" \t\r\n\0") not in (b"", b"}"):
        after = _object(b'{"traceEvents": []' + suffix)
    if after is None:
        notes.append("what stands behind the events is cut off or no JSON and was ignored; no event is lost by it")
    return (before or {}) | (after or {})


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(data)
    except STRICT_FAULTS:
        try:
            value = json.loads(data.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _ranks(distributed: Any) -> tuple[int, int]:
    """(rank, world size), -1 where not said; MTIA's traces hold the object as text, cut off."""
    if isinstance(distributed, dict):
        return integer(distributed.get("rank")), integer(distributed.get("world_size"))
    if not isinstance(distributed, str):
        return -1, -1
    rank, world = (re.search(_IN_TEXT.format(key), distributed) for key in ("rank", "world_size"))
    return integer(rank and rank.group(1)), integer(world and world.group(1))


def _devices(value: Any, notes: list[str]) -> tuple[DeviceProperties, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        notes.append("deviceProperties is not a list; ignored")
        return ()
    return tuple(_device(index, item) for index, item in enumerate(value) if isinstance(item, dict))


def _device(index: int, item: dict[str, Any]) -> DeviceProperties:
    identifier, memory = integer(item.get("id")), integer(item.get("totalGlobalMem"))
    major, minor = integer(item.get("computeMajor")), integer(item.get("computeMinor"))
    processors, name = integer(item.get("numSms")), item.get("name")
    return DeviceProperties(
        id=identifier if identifier >= 0 else index,
        name=name if isinstance(name, str) and name.strip() else None,
        memory_bytes=memory if memory > 0 else None,
        processors=processors if processors > 0 else None,
        compute=(major, minor) if major >= 0 and minor >= 0 else None,
    )
