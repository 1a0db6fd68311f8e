"""JSON bytes -> whole events, block by block: fast where the JSON is sound, patient where it is not.

A block is cut at what looks like a boundary between two events, and what stands before the cut is decoded as a list.
If that succeeds the cut was right: nothing that starts at an event and is cut inside another is a valid list. If it
fails (damage, a dialect that a strict decoder refuses, a cut inside a string or nested arguments), the same bytes are
taken in small chunks, and a chunk that fails is scanned event by event. An event that is not finished waits for more
bytes, and the next attempt for twice as many, so that no input takes quadratic time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from gobrrr.observe.records import Event, Piece
from gobrrr.observe.scan import LARGEST_EVENT, STRICT_FAULTS, Losses, Scanner, starts_unfinished

CHUNK_BYTES = 1 << 15
"""What is decoded at once where a whole block could not be."""

SNIFF_BYTES = 1 << 16
"""Bytes that must begin like JSON, or hold the start of an event list, for the rest to be read."""

LARGEST_PREFIX = 1 << 28
"""No trace has more than that (256 MiB) in front of its events."""

LARGEST_SUFFIX = 1 << 26
"""Of what follows the events no more than that (64 MiB) is kept."""

BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_OPENING = re.compile(rb'"traceEvents"\s*:\s*\[')
_LEADING = re.compile(rb"[\s,]*")
_START = re.compile(rb"(\xef\xbb\xbf)?\s*")  # a byte order mark, white space
_OVERLAP = 1 << 12
"""How far back a search goes into bytes already searched, for a match that two blocks share."""

_DECODER = msgspec.json.Decoder(list[Event])


@dataclass
class Decoder:
    """Feeds on blocks of bytes, yields pieces; afterwards the other fields say what else was in the file.

    `found=True` starts inside the event list, between two events.
    """

    prefix: bytes = b""  # what stands before the events; of a file without any, its beginning
    suffix: bytes = b""  # what stands after them
    found: bool = False  # an event list was found
    ended: bool = False  # and its closing bracket
    stopped: bool = False  # the rest was not worth reading
    events: int = 0
    read_bytes: int = 0
    _held: bytearray = field(default_factory=bytearray, repr=False)  # not decoded yet
    _after: list[bytes] = field(default_factory=list, repr=False)
    _kept_bytes: int = 0
    _scanner: Scanner = field(default_factory=Scanner, repr=False)
    _searched: int = 0  # bytes of `_held` in which no boundary, or no opening, is left to find
    _cut: int = 0  # the last boundary in `_held`
    _wanted: int = 0  # bytes that `_held` must have before the next attempt
    _too_few: int = 0  # bytes at its start that are known to hold no whole event

    @property
    def lost(self) -> Losses:
        """What was read and is in no event."""
        return self._scanner.lost

    @property
    def given_up(self) -> bool:
        """The event list held too much damage to go on."""
        return self._scanner.given_up

    def feed(self, blocks: Iterable[bytes]) -> Iterator[Piece]:
        """Yield the events of all blocks, in order."""
        for block in blocks:
            self.read_bytes += len(block)
            if self.ended:
                self._keep(block)
                continue
            self._held += block
            yield from self._counted(self._advance(final=False))
            if self.stopped:
                return
        yield from self._counted(self._advance(final=True))
        self.suffix = b"".join(self._after)

    def _counted(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self.events += len(piece.events)
            yield piece

    def _advance(self, *, final: bool) -> Iterator[Piece]:
        if self.ended or not (self.found or self._open(final=final)):
            return
        if final:
            yield from self._patiently(len(self._held), final=True)
            return
        self._find_cut()
        if len(self._held) >= LARGEST_EVENT:
            yield from self._patiently(len(self._held), final=False)
        elif self._cut and len(self._held) >= self._wanted:
            yield from self._decode(self._cut)

    def _decode(self, stop: int) -> Iterator[Piece]:
        piece = None if self._scanner.damaged else _strictly(self._held, 0, stop)
        if piece is None:
            yield from self._patiently(stop, final=False)
            return
        yield piece
        self._drop(stop)

    def _patiently(self, stop: int, *, final: bool) -> Iterator[Piece]:
        """Chunk by chunk up to `stop`; what is left of an unfinished event stays held."""
        at, size = 0, max(CHUNK_BYTES, self._too_few)
        while at < stop:
            end = min(stop, _boundary_from(self._held, at + size) or stop)
            piece = None if self._scanner.damaged else _strictly(self._held, at, end)
            if piece is not None:
                yield piece
                at, size = end, CHUNK_BYTES
                continue
            chunk, last = bytes(self._held[at:end]), end == stop
            if size > CHUNK_BYTES and not (final and last) and starts_unfinished(chunk):
                if last:
                    break
                size *= 2
                continue
            scan = self._scanner.scan(chunk, final=final and last)
            if scan.piece.events:
                yield scan.piece
            at += scan.consumed
            if scan.ended:
                self._end(at)
                return
            if self.given_up:
                self.stopped = True
                return
            if at < end and last:
                break
            size = CHUNK_BYTES if at == end else 2 * (end - at)
        self._drop(at)
        if at < stop:
            self._too_few, self._wanted = stop - at, 2 * len(self._held)

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._cut, self._searched, self._wanted, self._too_few = 0, 0, 0, 0

    def _end(self, at: int) -> None:
        self.ended = True
        self._keep(bytes(self._held[at:]))
        self._drop(len(self._held))

    def _keep(self, block: bytes) -> None:
        if self._kept_bytes < LARGEST_SUFFIX:
            self._after.append(block)
            self._kept_bytes += len(block)

    def _open(self, *, final: bool) -> bool:
        """Find the event list; sets `found`, or `stopped` where there can't be one."""
        start = _START.match(self._held)
        begin = start.end() if start else 0
        if self._held[begin : begin + 1] == b"[":
            self.found = True
            self._drop(begin + 1)
            return True
        opening = _OPENING.search(self._held, max(0, self._searched - _OVERLAP))
        self._searched = len(self._held)
        if opening is not None:
            self.found = True
            self.prefix = bytes(self._held[start.end(1) if start and start.group(1) else 0 : opening.end()])
            self._drop(opening.end())
            return True
        an_object = self._held[begin : begin + 1] == b"{"
        if final or len(self._held) > (LARGEST_PREFIX if an_object else SNIFF_BYTES):
            self.stopped = True
            self.prefix = bytes(self._held[:SNIFF_BYTES])
        return False

    def _find_cut(self) -> None:
        """The last boundary, looked for from the end, in bytes not searched before."""
        held, least = self._held, max(0, self._searched - _OVERLAP)
        reach, high = 1 << 14, len(held)
        while high > least:
            low = max(least, len(held) - reach)
            starts = [found.start() for found in BOUNDARY.finditer(held, low)]
            if starts:
                self._cut = max(self._cut, starts[-1] + 1)
                break
            high, reach = low, reach * 8
        self._searched = len(held)


def _strictly(held: bytearray, start: int, stop: int) -> Piece | None:
    """The events between two boundaries as the strict decoder reads them; None if it refuses."""
    leading = _LEADING.match(held, start, stop)
    first = leading.end() if leading else start
    with memoryview(held) as view, view[first:stop] as part:
        source = b"".join((b"[", part, b"]"))
    try:
        return Piece(_DECODER.decode(source), source)
    except STRICT_FAULTS:
        return None


def _boundary_from(held: bytearray, start: int) -> int | None:
    found = BOUNDARY.search(held, start)
    return found.start() + 1 if found else None
