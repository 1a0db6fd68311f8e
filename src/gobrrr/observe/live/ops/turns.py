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
        return all(self.first <= entry.at <= self.last for entry in entries)


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
        return sorted(result, key=lambda found: (found.turns[0], -found.turns[-1]))


def _counts(frame: FrameType, spans: tuple[Span, ...]) -> tuple[object, ...]:
    """What the counters of loops around other ones are: between these no operation may tell one turn from the next."""
    names = [span.counter for span in spans if span.counter]
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
    around = [at for at, counter in enumerate(counters) if counter.first < span.first and span.last <= counter.last]
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
    body = list(dis.get_instructions(code))
    spans: dict[int, int] = {}
    jumps = [one for one in body if _jumps(one) and one.argval <= one.offset and not one.opname.endswith(WAITING)]
    begins = {one.argval for one in jumps if one.offset in _reached(body, one.argval)}
    for jump in jumps:
        if jump.argval in begins:
            spans[jump.argval] = max(spans.get(jump.argval, 0), jump.offset)
    starts, lines = _lines_of(code)
    around = {first for first, last in spans.items() if any(first < other <= last for other in spans)}
    found = []
    for first, last in spans.items():
        line = min(_line(starts, lines, at) for at in (first, last))
        inside = [one for one in body if first <= one.offset <= last]
        told = [_line(starts, lines, one.offset) == line for one in inside]
        found.append(Span(first, last, line, _counter(inside, told) if first in around else ""))
    return tuple(found)


WAITING = "NO_INTERRUPT"
"""How jumps back end that wait for another generator."""

LEAVING = ("RETURN_", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD")
"""Instructions behind which the next one does not follow."""


def _jumps(one: dis.Instruction) -> bool:
    return one.opcode in _JUMPS and isinstance(one.argval, int)


def _reached(body: list[dis.Instruction], begin: int) -> set[int]:
    """The instructions that are reached from one on without an exception: Python 3.12 puts handlers behind all else and
    jumps back from them, which is no loop."""
    at = {one.offset: place for place, one in enumerate(body)}
    reached: set[int] = set()
    waiting = [begin]
    while waiting:
        offset = waiting.pop()
        if offset in reached or offset not in at:
            continue
        reached.add(offset)
        one, place = body[at[offset]], at[offset]
        if _jumps(one):
            waiting.append(one.argval)
        if not one.opname.startswith(LEAVING) and place + 1 < len(body):
            waiting.append(body[place + 1].offset)
    return reached


def _counter(inside: list[dis.Instruction], head: list[bool]) -> str:
    """A variable that each turn of a loop gives one new value: where the turn begins (`for`), or ends (`while`). "" for
    none. `head`: which of the loop's instructions are on its first line."""
    stored = [name for one in inside for name in _stored(one)]
    ends = [at for at, one in enumerate(inside) if _stored(one)]
    begun = next((at for at, one in enumerate(inside) if one.opname != "EXTENDED_ARG"), 0)
    given: tuple[str, ...] = ()
    if inside[begun].opname == "FOR_ITER":
        first = next((at for at in ends if at > begun), None)
        while first is not None and _stored(inside[first]):  # of several names, as in `for at, x in enumerate(xs)`
            given += _stored(inside[first])
            first += 1
    elif ends and all(head[ends[-1] + 1 :]):
        given = _stored(inside[ends[-1]])
    return next((name for name in given if stored.count(name) == 1), "")


NAMES = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")
"""Instructions that give a variable a value; from Python 3.13 on some do so to two, or read another one."""


def _stored(one: dis.Instruction) -> tuple[str, ...]:
    """The variables that an instruction gives a value."""
    if not one.opname.startswith(NAMES):
        return ()
    names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
    return names[:1] if one.opname.endswith("LOAD_FAST") else names


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def _lines_of(code: CodeType) -> tuple[list[int], list[int]]:
    known = [(start, line) for start, _, line in code.co_lines() if line]
    return [start for start, _ in known], [line for _, line in known]


def _line(starts: list[int], lines: list[int], at: int) -> int:
    place = bisect_left(starts, at + 1) - 1
    return lines[max(place, 0)] if lines else 0
