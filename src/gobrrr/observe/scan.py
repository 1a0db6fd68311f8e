"""The patient way through JSON that a strict decoder refuses: event by event, over damage, to the next sound event."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gobrrr.observe.records import NOTHING, Arguments, Event, Piece, Raw

LARGEST_EVENT = 1 << 26
"""An event that does not end within it (64 MiB) is damage: what it swallowed is searched for events."""

MOST_FAILURES = 50_000
"""After so many places that are no JSON the file is given up, so that garbage takes bounded time."""

DEEPEST = 64
"""What is nested deeper in an event than this is not read: no argument of a profiler's is, and a decoder gives up."""

_LARGEST_DEEP = 1 << 18
_DEEP_FAILURE = 100  # looking in vain for the end of an event counts as a failure for so many characters
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
_BETWEEN = re.compile(r"[\s,]*")
_NEXT_EVENT = re.compile(r",\s*(?=\{)")
_LONGEST_TOKEN = 8
"""A cut inside a literal ("-Infinity") is reported up to so many characters before the end."""

_JSON = json.JSONDecoder(strict=False, parse_float=str)  # takes control characters, NaN, Infinity; floats stay exact
_STRICT = msgspec.json.Decoder(Event)
STRICT_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
"""What a strict decoder raises on JSON that it does not take."""


@dataclass
class Losses:
    """What was read and is in no event."""

    bytes: int = 0  # not JSON, skipped
    places: int = 0  # in so many separate places
    cut_bytes: int = 0  # of the event in which the file ends
    strangers: int = 0  # entries of the event list that are no objects
    failures: int = 0  # attempts to read an event that failed
    deep: int = 0  # events of which a part was left out because it is nested too deep

    def __bool__(self) -> bool:
        return bool(self.bytes or self.cut_bytes or self.strangers)


@dataclass(frozen=True)
class Scan:
    """The outcome for one chunk: its events, how many of its bytes are done with, whether the list ended there."""

    piece: Piece
    consumed: int
    ended: bool = False


@dataclass
class Scanner:
    """Reads chunks of the event list one event at a time; remembers across chunks whether it is inside damage."""

    lost: Losses = field(default_factory=Losses)
    damaged: bool = False  # nothing sound since the last fault: a closing bracket here may be anyone's

    @property
    def given_up(self) -> bool:
        """There was too much damage to go on."""
        return self.lost.failures > MOST_FAILURES

    def scan(self, chunk: bytes, *, final: bool) -> Scan:
        """Every whole event of `chunk`, which starts between two events; `final`: nothing follows it."""
        text = chunk.decode("utf-8", "surrogateescape")
        events: list[Event] = []
        at = 0
        while True:
            at = _after(_BETWEEN, text, at)
            if at >= len(text):
                return Scan(Piece(events), len(chunk))
            if text[at] == "]" and not self.damaged:
                return Scan(Piece(events), _size(text, 0, at + 1), ended=True)
            try:
                value, stop = self._decoded(text, at)
            except (ValueError, RecursionError) as fault:
                unfinished = _unfinished(fault, text)
                if unfinished and not final and len(text) - at < LARGEST_EVENT:
                    return Scan(Piece(events), _size(text, 0, at))
                if unfinished and final and not self.damaged:
                    self.lost.cut_bytes = _size(text, at, len(text))
                    return Scan(Piece(events), len(chunk))
                stop = self._skip(text, at)
            else:
                self._take(value, text, at, stop, events)
            at = stop

    def _decoded(self, text: str, at: int) -> tuple[Any, int]:
        """The value at `at` and where it ends; what is nested deeper than `DEEPEST` is null."""
        try:
            return _JSON.raw_decode(text, at)
        except RecursionError:
            found = _shallow(text, at)
            if found is None:
                searched = min(len(text) - at, _LARGEST_DEEP)
                self.lost.failures += searched // _DEEP_FAILURE
                if searched < _LARGEST_DEEP:
                    raise json.JSONDecodeError("unfinished", text, len(text)) from None
                raise
        value, _ = _JSON.raw_decode(found[0])
        self.lost.deep += 1
        return value, found[1]

    def _take(self, value: Any, text: str, at: int, stop: int, events: list[Event]) -> None:
        if isinstance(value, dict) and (not self.damaged or "ph" in value):
            events.append(_event(value, text[at:stop].encode("utf-8", "surrogateescape")))
            self.damaged = False
        elif self.damaged:
            self.lost.bytes += _size(text, at, stop)  # a part of the damaged event
        else:
            self.lost.strangers += 1

    def _skip(self, text: str, at: int) -> int:
        """Over damage to what may be the start of the next event; the end of the chunk if there is none."""
        found = _NEXT_EVENT.search(text, at + 1)
        self.lost.failures += 1
        stop = found.end() if found and not self.given_up else len(text)
        self.lost.bytes += _size(text, at, stop)
        self.lost.places += not self.damaged
        self.damaged = True
        return stop


def _shallow(text: str, at: int) -> tuple[str, int] | None:
    """(the value at `at` with null for what is nested too deep, where it ends); None if it does not end soon."""
    kept, depth, begin = [], 0, at
    for token in _STRUCTURE.finditer(text, at, at + _LARGEST_DEEP):
        if token[0] in "[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += [text[begin : token.start()], "null"]
        elif token[0] in "]}":
            depth -= 1
            if depth == DEEPEST:
                begin = token.end()
            if depth <= 0:
                return "".join(kept) + text[begin : token.end()], token.end()
    return None


def starts_unfinished(chunk: bytes) -> bool:
    """Whether the event at the start of `chunk` surely needs more bytes: quicker to tell than a scan."""
    try:
        _STRICT.decode(chunk.lstrip(b", \t\r\n"))
    except msgspec.DecodeError as fault:
        return "truncated" in str(fault)
    except STRICT_FAULTS:
        return False
    return False


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _size(text: str, start: int, stop: int) -> int:
    """Bytes between two characters of a text."""
    return stop - start if text.isascii() else len(text[start:stop].encode("utf-8", "surrogateescape"))


def _unfinished(fault: Exception, text: str) -> bool:
    """Whether more text could make the JSON sound: it was refused where the text ends, or in a string without end."""
    if not isinstance(fault, json.JSONDecodeError):
        return False
    return fault.msg.startswith("Unterminated string") or fault.pos >= len(text) - _LONGEST_TOKEN


_FIELDS = {"ph", "cat", "name", "pid", "tid", "ts", "dur"}
_ARGUMENTS = {item.encode_name: item for item in msgspec.structs.fields(Arguments)}


def _event(value: dict[str, Any], raw: bytes) -> Event:
    """The event as the strict decoder gives it where it can, else as near to it as can be; times always exact."""
    try:
        event = _STRICT.decode(raw)
    except STRICT_FAULTS:
        return _from_dict(value)
    event.ts, event.dur = value.get("ts"), value.get("dur")
    return event


def _from_dict(value: dict[str, Any]) -> Event:
    event = Event(**{key: _clean(value[key]) for key in _FIELDS & value.keys()})
    given = value.get("args")
    if isinstance(given, dict):
        event.args = Arguments()
        for key in _ARGUMENTS.keys() & given.keys():
            item = _ARGUMENTS[key]
            setattr(event.args, item.name, given[key] if item.type is Any else _raw(given[key]))
    return event


def _clean(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _raw(value: Any) -> Raw:
    """`value` as JSON text that a strict decoder takes, or nothing."""
    try:
        text = json.dumps(value, allow_nan=False).encode()
        msgspec.json.decode(text)
    except STRICT_FAULTS:
        return NOTHING
    return Raw(text)
