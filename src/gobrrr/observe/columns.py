"""Decoded events -> columns: names interned, times exact, one pass a piece."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gobrrr.model.events import ABSENT, COLUMN_TYPES, DEVICE_KINDS, EventKind
from gobrrr.observe import numbers
from gobrrr.observe.dialect import DEVICE_WAITS, kind_of
from gobrrr.observe.records import NOTHING, Arguments, Event, Piece

LONG_FRAME_US = 1_000
"""Python frames that take this long are kept in any case: they say what the host did while the device was idle.

The masses of a trace with stacks are shorter frames."""

BEGIN, END, UNSOUND, BEGIN_IF_LONG = -2, -3, -4, -5
"""Stand-ins for a duration: a `B` row, an `E` row, a complete event whose duration is missing, negative or NaN, and
the `B` row of a Python frame that is kept only if it takes `LONG_FRAME_US`."""

_PHASES = ("X", "B", "E")
_ON_DEVICE = [int(kind) for kind in (*DEVICE_KINDS, EventKind.GPU_ANNOTATION, EventKind.SYNC)]
_NO_ARGUMENTS = Arguments()
_EXTRA = (
    "collective", "in_elements", "out_elements", "group_size", "dtype",
    "sync_kind", "wait_on_stream", "wait_on_record",
)  # fmt: skip
_DIGITS = re.compile(rb"\d+")
Columns = dict[str, NDArray[Any]]


class Interner(dict[Any, int]):
    """Gives each distinct key the next number."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class _Threads(dict[tuple[Any, Any], int]):
    """The number of a (process, thread) pair of any types; equal texts have one number."""

    def __init__(self, texts: Interner) -> None:
        self.texts = texts

    def __missing__(self, key: tuple[Any, Any]) -> int:
        process, thread = key
        self[key] = number = self.texts[_text(process), _text(thread)]
        return number


class _Grids(dict[bytes, int]):
    """Thread blocks of a launch from its grid ("[8192, 1, 1]", in 2021 as a string); `ABSENT` where it is none."""

    def __missing__(self, key: bytes) -> int:
        sizes = _DIGITS.findall(key)
        blocks = math.prod(map(int, sizes)) if 1 <= len(sizes) <= 3 and len(key) < 64 else ABSENT
        self[key] = blocks = blocks if blocks < 1 << 62 else ABSENT
        return blocks


@dataclass
class Builder:
    """Collects pieces; `columns()` hands over the columns, `names`, `threads` and `texts` what their indices mean."""

    python: bool = False
    names: Interner = field(default_factory=Interner)
    threads: Interner = field(default_factory=Interner)  # keys: (pid, tid) as text
    texts: Interner = field(default_factory=Interner)
    python_frames: int = 0  # skipped: not asked for, and shorter than `LONG_FRAME_US`
    _categories: Interner = field(default_factory=Interner)
    _pieces: list[Columns] = field(default_factory=list)
    _grids: _Grids = field(default_factory=lambda: _Grids())
    _thread_numbers: _Threads = field(init=False)

    def __post_init__(self) -> None:
        self._thread_numbers = _Threads(self.threads)

    @property
    def categories(self) -> list[str]:
        """Every category that was met, as text, in order."""
        return [str(category)[:40] for category in self._categories]

    def add(self, piece: Piece) -> None:
        """Take in the events of one piece that have a duration."""
        events = [event for event in piece.events if event.ph in _PHASES]
        categories = [event.cat for event in events]
        if not self.python and "python_function" in categories:
            wanted = [event for event in events if event.cat != "python_function" or _is_long(event)]
            self.python_frames += len(events) - len(wanted)
            events, categories = wanted, [event.cat for event in wanted]
        if events:
            start, duration = _times(piece, events)
            if not self.python:
                _mark_frames(events, duration)
            self._pieces.append(self._columns(events, categories, start, duration))

    def columns(self) -> Columns:
        """All pieces as one set of columns, in the order of the file."""
        pieces, self._pieces = self._pieces, []
        if not pieces:
            return {key: np.empty(0, dtype=kind) for key, kind in COLUMN_TYPES.items()}
        return {key: np.concatenate([piece[key] for piece in pieces]) for key in COLUMN_TYPES}

    def _columns(
        self, events: list[Event], categories: list[Any], start: NDArray[np.int64], duration: NDArray[np.int64]
    ) -> Columns:
        names, texts = self.names, self.texts
        named = [event.name if type(event.name) is str else _text(event.name) for event in events]
        arguments = [event.args or _NO_ARGUMENTS for event in events]
        kind = self._kinds(categories, named)
        on_device = np.isin(kind, _ON_DEVICE)
        return {
            "kind": kind,
            "name": np.array([names[name] for name in named], dtype=np.int32),
            "start_ns": start,
            "duration_ns": duration,
            "thread": self._threads(events),
            "device": _device(events, arguments, on_device),
            "stream": _stream(events, arguments, on_device),
            "correlation": _integers([item.correlation for item in arguments]),
            "external_id": _either(arguments, "external_id", "external_id_2021"),
            "sequence": _integers([item.sequence for item in arguments]),
            "bytes": _either(arguments, "bytes", "size"),
            "blocks": self._blocks(arguments),
            "dims": _interned([item.dims if item.dims is not NOTHING else item.dims_2021 for item in arguments], texts),
            "types": _interned([item.types for item in arguments], texts),
            "strides": _interned([item.strides for item in arguments], texts),
            "concrete": _interned([item.concrete for item in arguments], texts),
            "extra": _extras(arguments, texts),
        }

    def _kinds(self, categories: list[Any], named: list[str]) -> NDArray[np.uint8]:
        known = self._categories
        try:
            numbered = np.array([known[category] for category in categories], dtype=np.int32)
        except TypeError:  # an unhashable category
            numbered = np.array([known[_text(category)] for category in categories], dtype=np.int32)
        meaning = np.array([kind_of(category) for category in known], dtype=np.uint8)
        kinds = meaning[numbered]
        for row in np.flatnonzero(kinds == EventKind.KERNEL):
            if named[row] in DEVICE_WAITS:
                kinds[row] = EventKind.SYNC
        return kinds

    def _blocks(self, arguments: list[Arguments]) -> NDArray[np.int64]:
        known = self._grids
        return np.array([ABSENT if item.grid is NOTHING else known[bytes(item.grid)] for item in arguments], np.int64)

    def _threads(self, events: list[Event]) -> NDArray[np.int32]:
        known = self._thread_numbers
        try:
            return np.array([known[event.pid, event.tid] for event in events], dtype=np.int32)
        except TypeError:  # a process or thread that is a list or an object
            return np.array([self.threads[_text(event.pid), _text(event.tid)] for event in events], dtype=np.int32)


def _is_long(frame: Event) -> bool:
    """Whether a Python frame is kept in any case; one without a duration of its own gets it from its partner."""
    if frame.ph != "X":
        return True
    known = isinstance(frame.dur, int | float)
    return bool(frame.dur >= LONG_FRAME_US if known else numbers.single(frame.dur) >= LONG_FRAME_US * 1000)


def _mark_frames(events: list[Event], duration: NDArray[np.int64]) -> None:
    for row in np.flatnonzero(duration == BEGIN).tolist():
        if events[row].cat == "python_function":
            duration[row] = BEGIN_IF_LONG


def _text(value: Any) -> str:
    """A name, process or thread as text; a list or an object in its place names nothing."""
    return value if isinstance(value, str) else "" if value is None or isinstance(value, list | dict) else str(value)


def _times(piece: Piece, events: list[Event]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    start = numbers.native([event.ts for event in events])
    duration = numbers.native([event.dur for event in events])
    if start is None or duration is None:
        start, duration = _exact_times(piece, events)
    duration[duration < 0] = UNSOUND
    phases = {event.ph for event in events}
    if phases != {"X"}:
        for row, event in enumerate(events):
            if event.ph != "X":
                duration[row] = BEGIN if event.ph == "B" else END
    return start, duration


def _exact_times(piece: Piece, events: list[Event]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if piece.source is None:
        start, duration = [event.ts for event in events], [event.dur for event in events]
        return np.array(list(map(numbers.single, start))), np.array(list(map(numbers.single, duration)))
    taken = set(map(id, events))
    kept = [row for row, event in enumerate(piece.events) if id(event) in taken]
    times = piece.times()
    return (
        numbers.nanoseconds([times[row].ts for row in kept]),
        numbers.nanoseconds([times[row].dur for row in kept]),
    )


def _integers(values: list[Any]) -> NDArray[np.int64]:
    """Identifiers as int64, `ABSENT` for what is none; a column of machine integers, which is the rule, at once."""
    column = _array(values)
    if column is None:
        return np.array(list(map(numbers.integer, values)), dtype=np.int64)
    column[column < 0] = ABSENT
    return column


def _array(values: list[Any]) -> NDArray[np.int64] | None:
    try:
        column = np.array(values)
    except (OverflowError, TypeError, ValueError, RecursionError):  # lists of different lengths
        return None
    return column if column.dtype == np.int64 and column.ndim == 1 else None


def _either(arguments: list[Arguments], first: str, second: str) -> NDArray[np.int64]:
    column = _integers(list(map(attrgetter(first), arguments)))
    if (column == ABSENT).any():
        other = _integers(list(map(attrgetter(second), arguments)))
        column = np.where(column == ABSENT, other, column)
    return column


def _interned(raws: list[msgspec.Raw], texts: Interner) -> NDArray[np.int32]:
    return np.array([ABSENT if raw is NOTHING else texts[bytes(raw)] for raw in raws], dtype=np.int32)


def _device(events: list[Event], arguments: list[Arguments], on_device: NDArray[np.bool_]) -> NDArray[np.int32]:
    """`args.device`; a device's events without it name the device as their process."""
    column = _from_arguments(events, arguments, on_device, "device", _process_number, np.iinfo(np.int32).max)
    return column.astype(np.int32)


def _process_number(event: Event) -> int:
    return numbers.integer(event.pid)


def _stream(events: list[Event], arguments: list[Arguments], on_device: NDArray[np.bool_]) -> NDArray[np.int64]:
    """`args.stream`; a device's events without it name the stream as their thread (7, or "stream 7" in 2021)."""
    return _from_arguments(events, arguments, on_device, "stream", _thread_number, np.iinfo(np.int64).max)


def _thread_number(event: Event) -> int:
    return numbers.integer(_text(event.tid).removeprefix("stream "))


def _from_arguments(
    events: list[Event],
    arguments: list[Arguments],
    on_device: NDArray[np.bool_],
    key: str,
    otherwise: Callable[[Event], int],
    largest: int,
) -> NDArray[np.int64]:
    column = np.full(len(events), ABSENT, dtype=np.int64)
    rows, given = np.flatnonzero(on_device), attrgetter(key)
    column[rows] = _integers([given(arguments[row]) for row in rows.tolist()])
    column[column > largest] = ABSENT
    for row in rows[column[rows] == ABSENT].tolist():
        column[row] = otherwise(events[row])
    column[column > largest] = ABSENT
    return column


def _extras(arguments: list[Arguments], texts: Interner) -> NDArray[np.int32]:
    column = np.full(len(arguments), ABSENT, dtype=np.int32)
    for row, item in enumerate(arguments):
        if item.collective is not NOTHING or item.sync_kind is not NOTHING:
            given = {key: value for key in _EXTRA if (value := getattr(item, key)) is not NOTHING}
            column[row] = texts[msgspec.json.encode(given)]
    return column
