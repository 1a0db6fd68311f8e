"""Loops of the program in a step: by the line of the loop, where each turn begins.

A frame that goes through a loop comes back to an instruction that it was at before. Which instructions belong to a
loop is read off the jumps of its code; which of its functions is which, off the calls that the interpreter tells of.
"""

from __future__ import annotations

import dis
import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, NamedTuple

from gobrrr.observe.installed import Owner, owner
from gobrrr.observe.live.watches.calls import CallWatch
from gobrrr.observe.live.watches.lines import spelled
from gobrrr.observe.static.sites import DEEPEST

LEAST_TURNS = 4
"""A loop with fewer turns is none that anything would be gained from."""

WRAPPERS = (f"torch{os.sep}_compile.py", f"torch{os.sep}_dynamo{os.sep}eval_frame.py")
"""What older versions of torch put around a dispatch mode."""

MOST_ENTRIES = 1_000_000
"""Instructions of loops that are written down."""


class Span(NamedTuple):
    """A loop in a function's code: its instructions from `first` to `last`, and the line that it begins at.

    `counter`: the variable that a turn gives another value, of a loop with another one in it; "" where there is none.
    """

    first: int
    last: int
    line: int
    counter: str = ""

    def holds(self, *entries: Entry) -> bool:
        """Whether all of them are in it."""
        return all(self.first <= one.at <= self.last for one in entries)


class Entry(NamedTuple):
    """An instruction of a frame that dispatched operations from call `call` on; `inner`: the call that it makes;
    `counts`: what the counters of the loops around it are, in the order of the spans."""

    call: int
    at: int
    inner: int
    counts: tuple[object, ...] = ()


@dataclass
class Activation:
    """One run of a function: the instructions that dispatched something, in order; `stop`: behind the last call."""

    code: CodeType
    entries: list[Entry] = field(default_factory=list)
    begun: str = ""
    stop: int = 0


@dataclass(frozen=True)
class Found:
    """A loop as it was gone through once: the first call of each turn, and the end of the last one."""

    source: str
    turns: tuple[int, ...]


class Turns:
    """Told by `see` of each operation, in order; `found` at the end."""

    def __init__(self, watch: CallWatch) -> None:
        self.watch = watch
        self._spans: dict[CodeType, tuple[Span, ...]] = {}
        self._runs: dict[tuple[int, int], Activation] = {}
        self._left = MOST_ENTRIES

    @property
    def whole(self) -> bool:
        """Whether the calls of the whole step were told of: without them one turn is not known from the next."""
        return self.watch.following and self._left > 0

    def see(self, call: int, name: str, frame: FrameType | None) -> None:
        """An operation, as the `call`-th of the step; `frame`: the one that it was called from."""
        watch = self.watch
        if not watch.following or self._left <= 0:
            return
        while frame is not None and frame.f_code.co_filename.endswith(WRAPPERS):
            frame = frame.f_back
        inner, depth = 0, 0
        while frame is not None and depth < DEEPEST:
            code, key = frame.f_code, id(frame)
            spans = self._spans.get(code)
            if spans is None:
                spans = self._spans[code] = _spans_of(code)
            entered = watch.entered.get(key, 0)
            if spans:
                self._entered((key, entered), frame, spans, inner, call, name)
            inner = entered or key
            frame = frame.f_back
            depth += 1

    def _entered(
        self, key: tuple[int, int], frame: FrameType, spans: tuple[Span, ...], inner: int, call: int, name: str
    ) -> None:
        at = frame.f_lasti
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = Activation(frame.f_code)
        run.stop = call + 1
        if not inner:
            made = self.watch.called.get(key[0])
            inner = made[0] if made is not None and made[1] == at else 0
        last = run.entries[-1] if run.entries else None
        counts = _counts(frame, spans)
        # an operator makes no call: where its first operation comes again, it does
        same = last is not None and (last.at, last.inner, last.counts) == (at, inner, counts)
        if not same or (not inner and name == run.begun):
            run.entries.append(Entry(call, at, inner, counts))
            run.begun = name
            self._left -= 1

    def found(self) -> list[Found]:
        """The loops with at least `LEAST_TURNS` turns, in the order in which they begin; outer ones first."""
        result = []
        for run in self._runs.values():
            for span in self._spans[run.code]:
                source = spelled(run.code.co_filename, span.line, run.code.co_name)
                result += [Found(source, turns) for turns in _turns(run, span, self._spans[run.code])]
        return sorted(result, key=lambda one: (one.turns[0], -one.turns[-1]))


def _counts(frame: FrameType, spans: tuple[Span, ...]) -> tuple[object, ...]:
    """What the counters of loops around other ones are: between these no operation may tell one turn from the next."""
    names = [one.counter for one in spans if one.counter]
    if not names:
        return ()
    given = frame.f_locals
    return tuple(_mark(given.get(name)) for name in names)


def _mark(value: Any) -> object:
    """Stands for a value, which is not held."""
    return value if isinstance(value, int | str | None) else id(value)


def _turns(run: Activation, span: Span, spans: tuple[Span, ...]) -> Iterator[tuple[int, ...]]:
    """The turns of each time that the loop is gone through."""
    inner = [one for one in spans if one != span and span.first <= one.first and one.last <= span.last]
    counters = [one for one in spans if one.counter]
    own = counters.index(span) if span.counter else None
    around = [at for at, one in enumerate(counters) if one.first < span.first and span.last <= one.last]
    mine: list[Entry] = []
    for one in (*run.entries, None):
        begun_anew = one is not None and mine and any(one.counts[at] != mine[-1].counts[at] for at in around)
        if one is not None and span.holds(one) and not begun_anew:
            mine.append(one)
            continue
        turns = [mine[0].call] if mine else []
        single = len({entry.at for entry in mine}) == 1
        for before, entry in pairwise(mine):
            again = entry.at < before.at or (entry.at == before.at and (entry.inner > 0 or single))
            again = again and not any(other.holds(entry, before) for other in inner)
            if again or (own is not None and entry.counts[own] != before.counts[own]):
                turns.append(entry.call)
        if len(turns) >= LEAST_TURNS:
            yield (*turns, one.call if one is not None else run.stop)
        mine = [one] if one is not None and span.holds(one) else []


def _spans_of(code: CodeType) -> tuple[Span, ...]:
    """The loops of a function of the program or of an installed package; none of torch's and of this package."""
    if owner(code.co_filename) not in (Owner.USER, Owner.PACKAGE):
        return ()
    spans: dict[int, int] = {}
    for one in dis.get_instructions(code):
        jumps = one.opcode in _JUMPS and not one.opname.endswith("NO_INTERRUPT")  # which waits for another generator
        if jumps and isinstance(one.argval, int) and one.argval <= one.offset:
            spans[one.argval] = max(spans.get(one.argval, 0), one.offset)
    starts, lines = _lines_of(code)
    around = {first for first, last in spans.items() if any(first < other <= last for other in spans)}
    return tuple(
        Span(
            first,
            last,
            min(_line(starts, lines, at) for at in (first, last)),
            _counter(code, first, last) if first in around else "",
        )
        for first, last in spans.items()
    )


def _counter(code: CodeType, first: int, last: int) -> str:
    """The variable that a `for` gives a value at each turn, if nothing else in the loop does; "" for none."""
    inside = [one for one in dis.get_instructions(code) if first <= one.offset <= last]
    begun = next((one for one in inside if one.opname != "EXTENDED_ARG"), None)
    target = next((one for one in inside if one.opname.startswith("STORE_")), None)
    if begun is None or begun.opname != "FOR_ITER" or target is None or not target.opname.startswith(NAMES):
        return ""
    stored = [name for one in inside if one.opname.startswith(NAMES) for name in _stored(one)]
    return stored[0] if stored.count(stored[0]) == 1 else ""


NAMES = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")
"""Instructions that give a variable a value; from Python 3.13 on some do so to two, or read another one."""


def _stored(one: dis.Instruction) -> tuple[str, ...]:
    names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
    return names[:1] if one.opname.endswith("LOAD_FAST") else names


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def _lines_of(code: CodeType) -> tuple[list[int], list[int]]:
    known = [(start, line) for start, _, line in code.co_lines() if line]
    return [start for start, _ in known], [line for _, line in known]


def _line(starts: list[int], lines: list[int], at: int) -> int:
    place = bisect_left(starts, at + 1) - 1
    return lines[max(place, 0)] if lines else 0
