"""Columns of one or more parts -> one sound, sorted event table, with a note on everything that was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.model.events import ABSENT, COLUMN_TYPES, DEVICE_KINDS, EventKind, EventTable
from gobrrr.observe import numbers
from gobrrr.observe.columns import BEGIN, BEGIN_IF_LONG, END, LONG_FRAME_US, UNSOUND, Columns, Interner

LONGEST_NS = 1 << 53
"""104 days: no event is longer, so that sums of them stay in int64, and float64 holds each exactly."""

FARTHEST_NS = 1 << 61
"""73 years: no event starts farther than that from the middle one, so that differences stay in int64."""

ZERO_IS_FAR_NS = 1_000_000_000_000
"""Where a trace's clock stands beyond 1,000 s, an event that starts at exactly 0 was never stamped."""

EVIDENT = 0.01
"""Share of the identified events that stand twice in a file that holds events twice, and not just a stray one."""

_INDEXED = {"name": 0, "thread": 1, "dims": 2, "types": 2, "strides": 2, "concrete": 2, "extra": 2}


@dataclass(frozen=True)
class Part:
    """Columns and the three tables behind their indices: names, threads (pid, tid), texts."""

    columns: Columns
    tables: tuple[list[str], list[tuple[str, str]], list[bytes]]


def assemble(parts: list[Part]) -> tuple[EventTable, int, list[str]]:
    """(table, absolute time of its 0 in ns, notes)."""
    columns, tables = _merge(parts)
    notes: list[str] = []
    columns = _pair_phases(columns, notes)
    columns = _drop_unsound(columns, notes)
    columns = _drop_zeroed(columns, notes)
    columns = _drop_duplicates(columns, notes)
    origin = int(columns["start_ns"].min()) if len(columns["kind"]) else 0
    columns["start_ns"] = columns["start_ns"] - origin
    order = np.lexsort((-columns["duration_ns"], columns["start_ns"]))
    columns = {key: column[order] for key, column in columns.items()}
    names, threads, texts = tables
    table = EventTable(
        **columns, names=tuple(names), threads=tuple("/".join(pair) for pair in threads), texts=tuple(texts)
    )
    return table, origin, notes


def _merge(parts: list[Part]) -> tuple[Columns, tuple[list[str], list[tuple[str, str]], list[bytes]]]:
    if len(parts) == 1:
        return parts[0].columns, parts[0].tables
    interners = (Interner(), Interner(), Interner())
    pieces: list[Columns] = []
    for part in parts:
        tables: tuple[list[Any], ...] = part.tables
        maps = [
            np.array([interner[key] for key in table] or [0], dtype=np.int32)
            for interner, table in zip(interners, tables, strict=True)
        ]
        columns = dict(part.columns)
        for key, which in _INDEXED.items():
            column = columns[key]
            columns[key] = np.where(column == ABSENT, np.int32(ABSENT), maps[which][column])
        pieces.append(columns)
    merged = {key: np.concatenate([piece[key] for piece in pieces]) for key in COLUMN_TYPES}
    return merged, (list(interners[0]), list(interners[1]), list(interners[2]))


def _keep(columns: Columns, mask: NDArray[np.bool_]) -> Columns:
    return columns if mask.all() else {key: column[mask] for key, column in columns.items()}


def _pair_phases(columns: Columns, notes: list[str]) -> Columns:
    """`B` and `E` rows of a thread become complete events: an `E` closes the last open `B` of its thread."""
    duration = columns["duration_ns"]
    rows = np.flatnonzero(np.isin(duration, (BEGIN, END, BEGIN_IF_LONG)))
    if not len(rows):
        return columns
    columns = {**columns, "duration_ns": duration.copy()}
    start, thread = columns["start_ns"], columns["thread"]
    columns["duration_ns"][rows[start[rows] == numbers.INVALID]] = UNSOUND
    rows = rows[start[rows] != numbers.INVALID]
    order = rows[np.lexsort((rows, start[rows]))]  # file order among equal times
    open_rows: dict[int, list[int]] = {}
    unpaired = 0
    for row in order:
        stack = open_rows.setdefault(int(thread[row]), [])
        if duration[row] != END:
            stack.append(int(row))
        elif stack:
            begin = stack.pop()
            columns["duration_ns"][begin] = min(int(start[row]) - int(start[begin]), LONGEST_NS + 1)
        else:
            unpaired += 1
    unpaired += sum(map(len, open_rows.values()))
    if unpaired:
        notes.append(f"{unpaired:,} begin or end events have no partner and were left out")
    paired = columns["duration_ns"]
    short = (duration == BEGIN_IF_LONG) & (paired < LONG_FRAME_US * 1000)
    return _keep(columns, (paired != BEGIN) & (paired != END) & ~short)


def _drop_unsound(columns: Columns, notes: list[str]) -> Columns:
    """Events whose start or duration is missing, negative, NaN or beyond the clock can't be placed in time."""
    start, duration = columns["start_ns"], columns["duration_ns"]
    unsound = (start == numbers.INVALID) | (duration == UNSOUND) | (duration > LONGEST_NS)
    unsound |= _far_off(start, ~unsound)
    return _left_out(columns, unsound, notes, "a missing, negative, non-finite or impossibly large time")


def _far_off(start: NDArray[np.int64], sound: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Sound rows that start so far from the middle one that the difference may not fit int64."""
    starts = start[sound]
    if not len(starts) or int(starts.max()) - int(starts.min()) <= FARTHEST_NS:
        return np.zeros(len(start), dtype=bool)
    middle = np.partition(starts, len(starts) // 2)[len(starts) // 2]
    distance: NDArray[np.bool_] = np.abs(start / 2 - middle / 2) > FARTHEST_NS / 4  # halves, in float64: can't overflow
    return sound & distance


def _left_out(columns: Columns, mask: NDArray[np.bool_], notes: list[str], why: str) -> Columns:
    count = int(mask.sum())
    if not count:
        return columns
    device = int((mask & np.isin(columns["kind"], DEVICE_KINDS)).sum())
    what = f"{count:,} event{'s have' if count > 1 else ' has'} {why} and can't be placed: left out"
    if device:
        what += f", {device:,} of them device work, so that the real device time is longer"
    notes.append(what)
    return _keep(columns, ~mask)


def _drop_zeroed(columns: Columns, notes: list[str]) -> Columns:
    """Events that start at exactly 0 and end long before all others do: never stamped, so not where they stand."""
    start = columns["start_ns"]
    zero = start == 0
    if not zero.any() or zero.all():
        return columns
    earliest = start[~zero].min()
    if earliest < ZERO_IS_FAR_NS:
        return columns
    return _left_out(columns, zero & (columns["duration_ns"] < earliest), notes, "a start of 0, far from all others,")


def _drop_duplicates(columns: Columns, notes: list[str]) -> Columns:
    """The same record twice: same kind, name, place, start, duration and identifiers.

    Host calls without an identifier are kept: two that short can start in one tick of an old, coarse clock. Where
    `EVIDENT` of the others stand twice, the file was written twice, and such calls are counted once as well.
    """
    identified = (columns["correlation"] != ABSENT) | (columns["external_id"] != ABSENT)
    identified |= np.isin(columns["kind"], (*DEVICE_KINDS, EventKind.GPU_ANNOTATION, EventKind.ANNOTATION))
    if not identified.any() or not _may_repeat(columns, identified):
        return columns
    repeated = _repeated(columns, np.flatnonzero(identified))
    if len(repeated) >= EVIDENT * int(identified.sum()):
        repeated = _repeated(columns, np.arange(len(identified)))
    count = len(repeated)
    if not count:
        return columns
    notes.append(f"{count:,} event{'s stand' if count > 1 else ' stands'} twice in the file; counted once")
    keep = np.ones(len(columns["kind"]), dtype=bool)
    keep[repeated] = False
    return _keep(columns, keep)


def _repeated(columns: Columns, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of `rows` that equal an earlier one."""
    keys = ("kind", "name", "thread", "stream", "start_ns", "duration_ns", "correlation", "external_id")
    stacked = np.stack([columns[key][rows].astype(np.int64) for key in keys])
    order = np.lexsort(stacked)
    ranked = stacked[:, order]
    again = np.concatenate([[False], (ranked[:, 1:] == ranked[:, :-1]).all(axis=0)])
    repeated: NDArray[np.int64] = rows[order[again]]
    return repeated


def _may_repeat(columns: Columns, identified: NDArray[np.bool_]) -> bool:
    """Cheap screen: one mixed 64-bit key an event; without two equal keys nothing stands twice."""
    mixed: NDArray[Any] = columns["start_ns"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, key in enumerate(("name", "thread", "correlation", "external_id", "duration_ns")):
        mixed = (mixed ^ (columns[key].astype(np.uint64) + np.uint64(shift))) * np.uint64(0xBF58476D1CE4E5B9)
    chosen = np.sort(mixed[identified])
    return bool((chosen[1:] == chosen[:-1]).any())
