"""A large trace from a small one: time-shifted copies that keep the layout of the file, byte for byte between numbers.

    python -m bench.make_trace SOURCE OUT --copies 40
    python -m bench.make_trace SOURCE OUT --target-mb 383

Each copy starts after the one before it has ended. Its correlation, external and flow ids are its own. Timestamps are
shifted by whole microseconds in integer or decimal arithmetic, so that no digit of a fraction is lost.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

TIMES = ("ts",)
IDS = (
    "id", "correlation", "External id", "external id", "Record function id", "Ev Idx", "Sequence number", "Python id",
    "Python parent id", "wait_on_cuda_event_record_corr_id",
)  # fmt: skip
"""Numbers that join events to one another; 0 and -1 mean "none" and stay."""

# A quote inside a JSON string is escaped, so `"ts":` is always a key.
NUMBER = re.compile(rf'("(?:{"|".join(map(re.escape, TIMES + IDS))})"\s*:\s*"?)(-?\d[\d.eE+-]*)')
EVENTS = re.compile(r'"traceEvents"\s*:\s*(?=\[)')
GAP_US = 1000
"""Between the end of a copy and the start of the next."""


@dataclass(frozen=True)
class Source:
    """A trace cut at its events: `texts` are what stands between the numbers of `fields`."""

    head: str
    tail: str
    separator: str
    texts: tuple[str, ...]
    fields: tuple[tuple[bool, str], ...]  # is it a time, the number as it is written
    events: int
    period_us: int
    id_stride: int

    @property
    def body_bytes(self) -> int:
        """Size of one copy; the ids and times of later copies may have some more digits."""
        return sum(len(text.encode()) for text in self.texts) + sum(len(number) for _, number in self.fields)


def make_trace(source: Path, copies: int, out: Path) -> int:
    """Write `copies` of the trace at `source` (gzip or not) to `out` one after the other; returns the number of events.

    Raises ValueError when `source` is not a trace with events.
    """
    return write_copies(read_source(source), copies, out)


def write_copies(source: Source, copies: int, out: Path) -> int:
    """The writing half of `make_trace`: one copy in memory, the rest streamed."""
    with out.open("w", encoding="utf-8", newline="") as file:
        file.write(source.head)
        for copy in range(copies):
            file.write(source.separator if copy else "")
            _write_copy(source, copy, file)
        file.write(source.tail)
    return copies * source.events


def read_source(path: Path) -> Source:
    """Read and cut the trace at `path`."""
    opener = gzip.open if path.read_bytes()[:2] == b"\x1f\x8b" else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        text = file.read()
    key = EVENTS.search(text)
    start = key.end() if key else len(text) - len(text.lstrip())
    if text[start : start + 1] != "[":
        raise ValueError(f"{path}: no traceEvents")
    events, end = json.JSONDecoder().raw_decode(text, start)
    inside = text[start + 1 : end - 1]
    body = inside.strip()
    if not events:
        raise ValueError(f"{path}: no events")
    lead = inside[: inside.index(body[0])]
    pieces = NUMBER.split(body)
    return Source(
        head=text[: start + 1] + lead,
        tail=inside[len(inside.rstrip()) :] + text[end - 1 :],
        separator="," + lead,
        texts=tuple(_between(pieces)),
        fields=tuple((_is_time(key), number) for key, number in zip(pieces[1::3], pieces[2::3], strict=True)),
        events=len(events),
        period_us=_span_us(events) + GAP_US,
        id_stride=_largest_id(pieces) + 1,
    )


def _between(pieces: list[str]) -> list[str]:
    """Each text up to and with the key of the next number; the last is what follows the last number."""
    return [text + key for text, key in zip(pieces[0::3], [*pieces[1::3], ""], strict=True)]


def _is_time(key: str) -> bool:
    return key.startswith(tuple(f'"{name}"' for name in TIMES))


def _span_us(events: list[Any]) -> int:
    timed = [event for event in events if event.get("ph") != "M" and "ts" in event]
    if not timed:
        raise ValueError("no event has a time")
    start = min(float(event["ts"]) for event in timed)
    return math.ceil(max(float(event["ts"]) + float(event.get("dur", 0)) for event in timed) - start)


def _largest_id(pieces: list[str]) -> int:
    ids = [number for key, number in zip(pieces[1::3], pieces[2::3], strict=True) if not _is_time(key)]
    return max((int(number) for number in ids if number.isdigit()), default=0)


def _write_copy(source: Source, copy: int, file: TextIO) -> None:
    later_us, later_id = copy * source.period_us, copy * source.id_stride
    parts: list[str] = []
    for text, (is_time, number) in zip(source.texts, source.fields, strict=False):
        parts.append(text)
        parts.append(_shift_time(number, later_us) if is_time else _shift_id(number, later_id))
    parts.append(source.texts[-1])
    file.write("".join(parts))


def _shift_time(number: str, by_us: int) -> str:
    """Exact: the fraction of a plain number is kept as it is written, anything else goes through Decimal."""
    whole, point, fraction = number.partition(".")
    if whole.isdigit() and (not point or fraction.isdigit()):
        return f"{int(whole) + by_us}{point}{fraction}"
    return f"{Decimal(number) + by_us:f}"


def _shift_id(number: str, by: int) -> str:
    return str(int(number) + by) if number.isdigit() and number != "0" else number


def copies_for(source: Source, megabytes: float) -> int:
    """How many copies make about `megabytes` (1e6 bytes)."""
    return max(1, round(megabytes * 1e6 / source.body_bytes))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--copies", type=int)
    size.add_argument("--target-mb", type=float)
    options = parser.parse_args(arguments)
    source = read_source(options.source)
    copies = options.copies or copies_for(source, options.target_mb)
    events = write_copies(source, copies, options.out)
    print(f"{options.out}: {copies} copies, {events:,} events, {options.out.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
