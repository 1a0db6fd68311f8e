"""The program's loops in a step: the line of each, and where each turn begins.

A frame that runs a loop comes back to an instruction that it has run before. The jumps of its code show which
instructions belong to a loop. The calls that the interpreter reports tell one run of a function from the next.
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

LEAST_FOLLOWED_TURNS = 4
"""Turns of a loop from which on it is looked at: with fewer there is little to gain. Chosen."""

WRAPPERS = (f"torch{os.sep}_compile.py", f"torch{os.sep}_dynamo{os.sep}eval_frame.py")
"""The files of the wrappers that older versions of torch put around a dispatch mode."""

MOST_ENTRIES = 1_000_000
"""Instructions of loops that are recorded in a step; chosen."""


class LoopSpan(NamedTuple):
    """A loop in a function's code: its instructions from `first` to `last`, and the line where it begins.

    `counter`: for a loop that holds another one, the variable that gets a new value in each turn; else "".
    """

    first: int
    last: int
    line: int
    counter: str = ""

    def holds(self, *entries: LoopEntry) -> bool:
        """Whether all of these instructions are in the loop."""
        return all(self.first <= entry.at <= self.last for entry in entries)


class LoopEntry(NamedTuple):
    """An instruction of a frame that dispatched operations, the first of them number `call` of the step.

    `inner`: the call that the instruction makes; `counts`: the values of the counters of `spans` with one, in order.
    """

    call: int
    at: int
    inner: int
    counts: tuple[object, ...] = ()


@dataclass
class Activation:
    """One run of a function: the instructions that dispatched operations, in order.

    `begun`: the first operation of the last instruction; `stop`: the number after the last operation.
    """

    code: CodeType
    entries: list[LoopEntry] = field(default_factory=list)
    begun: str = ""
    stop: int = 0


@dataclass(frozen=True)
class LoopRun:
    """One run of a loop: the first operation of each turn, and the end of the last one."""

    source: str
    turns: tuple[int, ...]


class LoopTurns:
    """Call `see` for each operation, in order, and `found` at the end."""

    def __init__(self, watch: CallWatch) -> None:
        self.watch = watch
        self._spans: dict[CodeType, tuple[LoopSpan, ...]] = {}
        self._runs: dict[tuple[int, int], Activation] = {}
        self._left = MOST_ENTRIES

    @property
    def whole(self) -> bool:
        """Whether the interpreter reported all calls of the step: else turns can't be told apart."""
        return self.watch.following and self._left > 0

    def see(self, call: int, name: str, frame: FrameType | None) -> None:
        """The `call`-th operation of the step; `frame` called it."""
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
        self, key: tuple[int, int], frame: FrameType, spans: tuple[LoopSpan, ...], inner: int, call: int, name: str
    ) -> None:
        at = frame.f_lasti
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = Activation(frame.f_code)
        run.stop = call + 1
        if not inner:
            called = self.watch.called.get(key[0])
            inner = called[0] if called is not None and called[1] == at else 0
        last = run.entries[-1] if run.entries else None
        counts = _counts(frame, spans)
        # an operator makes no call: it runs again where its first operation comes again
        same = last is not None and (last.at, last.inner, last.counts) == (at, inner, counts)
        if not same or (not inner and name == run.begun):
            run.entries.append(LoopEntry(call, at, inner, counts))
            run.begun = name
            self._left -= 1

    def found(self) -> list[LoopRun]:
        """The loops with at least `LEAST_FOLLOWED_TURNS` turns, in the order in which they begin; outer ones first."""
        result = []
        for run in self._runs.values():
            for span in self._spans[run.code]:
                source = spelled(run.code.co_filename, span.line, run.code.co_name)
                result += [LoopRun(source, turns) for turns in _turns(run, span, self._spans[run.code])]
        return sorted(result, key=lambda found: (found.turns[0], -found.turns[-1]))


def _counts(frame: FrameType, spans: tuple[LoopSpan, ...]) -> tuple[object, ...]:
    """The values of the counters of loops around other loops, where operations alone may not tell turns apart."""
    names = [span.counter for span in spans if span.counter]
    if not names:
        return ()
    variables = frame.f_locals
    return tuple(_mark(variables.get(name)) for name in names)


def _mark(value: Any) -> object:
    """Stands for a value without holding a reference to it."""
    return value if isinstance(value, int | str | None) else id(value)


def _turns(run: Activation, span: LoopSpan, spans: tuple[LoopSpan, ...]) -> Iterator[tuple[int, ...]]:
    """The turns of each run of the loop."""
    inner = [other for other in spans if other != span and span.first <= other.first and other.last <= span.last]
    counters = [other for other in spans if other.counter]
    own = counters.index(span) if span.counter else None
    around = [at for at, counter in enumerate(counters) if counter.first < span.first and span.last <= counter.last]
    in_loop: list[LoopEntry] = []
    for new in (*run.entries, None):
        next_run = new is not None and in_loop and any(new.counts[at] != in_loop[-1].counts[at] for at in around)
        if new is not None and span.holds(new) and not next_run:
            in_loop.append(new)
            continue
        turns = [in_loop[0].call] if in_loop else []
        single = len({entry.at for entry in in_loop}) == 1
        for before, entry in pairwise(in_loop):
            again = entry.at < before.at or (entry.at == before.at and (entry.inner > 0 or single))
            again = again and not any(other.holds(entry, before) for other in inner)
            if again or (own is not None and entry.counts[own] != before.counts[own]):
                turns.append(entry.call)
        if len(turns) >= LEAST_FOLLOWED_TURNS:
            yield (*turns, new.call if new is not None else run.stop)
        in_loop = [new] if new is not None and span.holds(new) else []


def _spans_of(code: CodeType) -> tuple[LoopSpan, ...]:
    """The loops of a function of the program or of an installed package; none for torch and for this package."""
    if owner(code.co_filename) not in (Owner.USER, Owner.PACKAGE):
        return ()
    body = list(dis.get_instructions(code))
    spans: dict[int, int] = {}
    back = (jump for jump in body if _jumps(jump) and jump.argval <= jump.offset)
    jumps = [jump for jump in back if not jump.opname.endswith(RESUMING_JUMP)]
    begins = {jump.argval for jump in jumps if jump.offset in _reached(body, jump.argval)}
    for jump in jumps:
        if jump.argval in begins:
            spans[jump.argval] = max(spans.get(jump.argval, 0), jump.offset)
    starts, lines = _lines_of(code)
    around = {first for first, last in spans.items() if any(first < other <= last for other in spans)}
    found = []
    for first, last in spans.items():
        line = min(_line(starts, lines, at) for at in (first, last))
        inside = [instruction for instruction in body if first <= instruction.offset <= last]
        head = [_line(starts, lines, instruction.offset) == line for instruction in inside]
        found.append(LoopSpan(first, last, line, _counter(inside, head) if first in around else ""))
    return tuple(found)


RESUMING_JUMP = "NO_INTERRUPT"
"""How the names of backward jumps end that wait for another generator."""

NO_FALL_THROUGH = ("RETURN_", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD")
"""How the names of instructions begin after which the next one never runs."""


def _jumps(instruction: dis.Instruction) -> bool:
    return instruction.opcode in _JUMPS and isinstance(instruction.argval, int)


def _reached(body: list[dis.Instruction], begin: int) -> set[int]:
    """The instructions that are reached from one without an exception.

    Python 3.12 puts handlers behind all other code and jumps back from them, which is no loop.
    """
    at = {instruction.offset: place for place, instruction in enumerate(body)}
    reached: set[int] = set()
    waiting = [begin]
    while waiting:
        offset = waiting.pop()
        if offset in reached or offset not in at:
            continue
        reached.add(offset)
        instruction, place = body[at[offset]], at[offset]
        if _jumps(instruction):
            waiting.append(instruction.argval)
        if not instruction.opname.startswith(NO_FALL_THROUGH) and place + 1 < len(body):
            waiting.append(body[place + 1].offset)
    return reached


def _counter(inside: list[dis.Instruction], head: list[bool]) -> str:
    """The variable that each turn of a loop assigns once: at its start (`for`) or at its end (`while`); "" for none.

    `head`: for each instruction of the loop, whether it is on the loop's first line.
    """
    stored = [name for instruction in inside for name in _stored(instruction)]
    stores = [at for at, instruction in enumerate(inside) if _stored(instruction)]
    begun = next((at for at, instruction in enumerate(inside) if instruction.opname != "EXTENDED_ARG"), 0)
    candidates: tuple[str, ...] = ()
    if inside[begun].opname == "FOR_ITER":
        first = next((at for at in stores if at > begun), None)
        while first is not None and _stored(inside[first]):  # of several names, as in `for at, x in enumerate(xs)`
            candidates += _stored(inside[first])
            first += 1
    elif stores and all(head[stores[-1] + 1 :]):
        candidates = _stored(inside[stores[-1]])
    return next((name for name in candidates if stored.count(name) == 1), "")


STORE_INSTRUCTIONS = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")
"""How the names of instructions begin that assign a variable; from Python 3.13 on some assign two, or read another."""


def _stored(instruction: dis.Instruction) -> tuple[str, ...]:
    """The variables that an instruction assigns."""
    if not instruction.opname.startswith(STORE_INSTRUCTIONS):
        return ()
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    return names[:1] if instruction.opname.endswith("LOAD_FAST") else names


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
"""The codes of the instructions that jump."""


def _lines_of(code: CodeType) -> tuple[list[int], list[int]]:
    known = [(start, line) for start, _, line in code.co_lines() if line]
    return [start for start, _ in known], [line for _, line in known]


def _line(starts: list[int], lines: list[int], at: int) -> int:
    place = bisect_left(starts, at + 1) - 1
    return lines[max(place, 0)] if lines else 0
