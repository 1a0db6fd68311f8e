"""Operations that need not run, grouped by the place in the program that repeats them: a module's call, or a line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from gobrrr.model.recording import AgainKind, RecordedCall, RepeatedWork, Site
from gobrrr.observe.live.again.leaves import FIRST_LEAF_BIT, FROZEN, LEARNS, UNKNOWN_LEAF, Leaves
from gobrrr.observe.live.again.values import NumberedOperation, ValueNumbers

STEPS_TO_COMPARE = 2
"""Steps that must be looked at to know what stays the same from step to step."""
FILLS = (
    "aten::zeros", "aten::ones", "aten::full", "aten::new_", "aten::fill", "aten::scalar_tensor", "aten::zeros_like",
)  # fmt: skip
"""Operations that write one number. Storing their result would save nothing: it is written as fast as it is read."""

REPEATED_PRODUCTS = (
    "aten::mm",
    "aten::bmm",
    "aten::addmm",
    "aten::baddbmm",
    "aten::linear",
    "aten::matmul",
    "aten::conv",
)
"""Matrix products. A function that gets all rows again and has none of these only arranges them, as around a cache."""


class Invocation(NamedTuple):
    """One call of a module or of a function of the program.

    `around`: the call that makes it, -1 for none; `line`: the line that makes it; `module`: the module's name, or
    "function()".
    """

    around: int
    line: str | None
    module: str


@dataclass(frozen=True)
class ObservedStep:
    """One step: its values, the calls of its modules, and the call that each operation ran in (`within`).

    `given`: the number and the dependence bits of each tensor that an outermost module was called with.
    """

    values: ValueNumbers
    calls: list[Invocation]
    within: dict[int, int]
    given: set[tuple[int, int]]


@dataclass(frozen=True)
class _Place:
    """A line and a module's class. `whole`: all of the module's work is repeated."""

    source: str | None
    module: str | None
    whole: bool


def again(
    looks: Sequence[ObservedStep],
    leaves: Leaves,
    grown: dict[int, tuple[int, int]],
    functions: tuple[ObservedStep, dict[int, tuple[int, int]]],
    calls: Sequence[RecordedCall],
    sites: Sequence[Site],
) -> tuple[RepeatedWork, ...]:
    """All repeated work, by place.

    `grown`: the calls of modules that computed rows again, with their numbers of rows. `functions`: the calls of
    functions outside of modules, and those of them that computed rows again.
    """
    first = looks[0]
    forward = {at: row for at, row in first.values.rows.items() if at < len(calls) and _can_repeat(calls[at])}
    each_step = _same_each_step(looks, leaves, forward, calls)
    within_step = _same_within_step(forward) - each_step
    rows = _rows(first, forward, grown)
    plain, grown_plain = functions
    others = {at: row for at, row in _rows(plain, forward, grown_plain).items() if at not in rows}
    products = {
        _outermost(plain, at, grown_plain) for at in others if calls[at].call.name.startswith(REPEATED_PRODUCTS)
    }
    others = {at: other for at, other in others.items() if _outermost(plain, at, grown_plain) in products}
    prefix = {*rows, *others}
    found = _by_place("steps", first, forward, each_step - prefix, calls, sites)
    found += _by_place("turns", first, forward, within_step - prefix, calls, sites)
    return (*found, *_prefixes(first, rows, grown), *_prefixes(plain, others, grown_plain))


def _can_repeat(call: RecordedCall) -> bool:
    """Whether it is of the forward pass: gradients always differ, and a checkpoint repeats work on purpose."""
    return call.phase == "forward" and not call.recomputed


# -- the same number


def _same_each_step(
    looks: Sequence[ObservedStep], leaves: Leaves, forward: dict[int, NumberedOperation], calls: Sequence[RecordedCall]
) -> set[int]:
    """Operations that both steps did, on what is not the step's data."""
    if len(looks) < STEPS_TO_COMPARE:
        return set()
    other_step = {row.number for row in looks[1].values.rows.values()}
    constant = _constant(looks, leaves, other_step, training=any(call.phase == "backward" for call in calls))
    same = {at for at, row in forward.items() if row.number in other_step and not row.needs & ~constant}
    if len(same) == len(forward):
        return set()  # nothing in this step varies: it is run on the same data on purpose
    return _useful(forward, same)


def _constant(looks: Sequence[ObservedStep], leaves: Leaves, other_step: set[int], *, training: bool) -> int:
    """The bits of what is constant: weights that don't learn, and tensors that are no step's data."""
    bits = FROZEN if training else FROZEN | LEARNS
    others = leaves.others
    # the data differ from step to step: then what does not differ is no data
    changing = any(
        not leaf.written and leaf.numbers.get(0, set()) != leaf.numbers.get(1, set()) and leaf.numbers.get(1)
        for _, leaf in others
    )
    # the step makes its data at random: then what they are not made of is no data
    random = any(not needs & LEARNS for _, needs in looks[0].given - looks[1].given)
    batch = 0
    for _, needs in looks[0].given | looks[1].given:
        batch |= needs
    drawn = 0
    for row in looks[0].values.rows.values():
        if row.draws and row.number not in other_step:
            drawn |= row.draws
    for key, leaf in others:
        other_part = leaf.views.get(0) != leaf.views.get(1)
        held = key in leaves.attributes or leaves.registered(key)
        no_data = changing or held or (random and not leaf.bit & batch)
        if not leaf.written and (no_data or leaf.bit & drawn or (leaf.large and other_part)):
            bits |= leaf.bit
    return bits & ~UNKNOWN_LEAF


def _same_within_step(forward: dict[int, NumberedOperation]) -> set[int]:
    """Operations that the same step had done before."""
    seen: set[int] = set()
    same = set()
    for at, row in sorted(forward.items()):
        if row.number in seen:
            same.add(at)
        seen.add(row.number)
    return _useful(forward, same)


def _useful(forward: dict[int, NumberedOperation], same: set[int]) -> set[int]:
    """The repeated operations whose result is read by an operation that must run, directly or through others of them.

    Without those whose result is overwritten later.
    """
    writers: dict[int, list[int]] = defaultdict(list)
    for at, row in sorted(forward.items()):
        for key in row.storages:
            writers[key].append(at)
    for places in writers.values():
        last = next((at for at in reversed(places) if at not in same and forward[at].into), -1)
        same = same - {at for at in places if at < last}
    wanted = {state for at, row in forward.items() if at not in same for state in row.read}
    useful = set()
    for at in sorted(same, reverse=True):
        if wanted & set(forward[at].made):
            useful.add(at)
            wanted |= set(forward[at].read)
    return useful


# -- rows


def _rows(
    look: ObservedStep, forward: dict[int, NumberedOperation], grown: dict[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """Operations within calls that computed rows again, with the numbers of rows."""
    return {at: grown[call] for at in forward if (call := _outermost(look, at, grown)) >= 0}


def _prefixes(
    look: ObservedStep, rows: dict[int, tuple[int, int]], grown: dict[int, tuple[int, int]]
) -> list[RepeatedWork]:
    groups: dict[tuple[str | None, str, bool], list[int]] = defaultdict(list)
    for at in sorted(rows):
        _, line, name = look.calls[_outermost(look, at, grown)]
        is_function = name.endswith("()")
        groups[line, name if is_function else _class_of(name), is_function].append(at)
    return [
        RepeatedWork(
            kind="rows",
            source=line,
            module=None if is_function else name,
            op=name if is_function else None,
            calls=tuple(some),
            times=len({rows[at] for at in some}),
            rows=tuple(rows[at] for at in some),
            whole=True,
        )
        for (line, name, is_function), some in groups.items()
    ]


def _outermost(look: ObservedStep, at: int, wanted: Container[int]) -> int:
    """The outermost of the wanted calls around an operation; -1 for none."""
    call, found = look.within.get(at, -1), -1
    while call >= 0:
        found = call if call in wanted else found
        call = look.calls[call].around
    return found


# -- places


def _by_place(
    kind: AgainKind,
    look: ObservedStep,
    forward: dict[int, NumberedOperation],
    same: set[int],
    calls: Sequence[RecordedCall],
    sites: Sequence[Site],
) -> list[RepeatedWork]:
    whole = _whole(look, forward, same)
    groups: dict[_Place, list[int]] = defaultdict(list)
    for at in sorted(same):
        groups[_place(at, look, whole, calls, sites)].append(at)
    found = []
    for place, some in groups.items():
        if all(calls[at].call.name.startswith(FILLS) for at in some):
            continue
        needs = 0
        for at in some:
            needs |= forward[at].needs
        times = Counter(forward[at].number for at in some)
        found.append(
            RepeatedWork(
                kind=kind,
                source=place.source,
                module=place.module,
                op=None if place.whole else _largest(some, calls),
                calls=tuple(some),
                times=max(times.values()) + (kind == "turns"),
                of=_made_of(needs),
                whole=place.whole,
            )
        )
    return found


def _whole(look: ObservedStep, forward: dict[int, NumberedOperation], same: set[int]) -> set[int]:
    """The calls of modules all of whose operations are repeated ones."""
    total, repeated = Counter[int](), Counter[int]()
    for at in forward:
        call = look.within.get(at, -1)
        while call >= 0:
            total[call] += 1
            repeated[call] += at in same
            call = look.calls[call].around
    return {call for call, count in total.items() if repeated[call] == count}


def _place(
    at: int, look: ObservedStep, whole: set[int], calls: Sequence[RecordedCall], sites: Sequence[Site]
) -> _Place:
    """The outermost call of a module that repeats all of its work; else the operation's own line."""
    top = _outermost(look, at, whole)
    if top >= 0:
        invocation = look.calls[top]
        return _Place(invocation.line, _class_of(invocation.module), whole=True)
    site = sites[calls[at].site]
    return _Place(site.user or site.source, _class_of(site.modules[-1]) if site.modules else None, whole=False)


def _largest(some: list[int], calls: Sequence[RecordedCall]) -> str:
    """The name of the operation with the most elements: it stands for the others."""
    return calls[max(some, key=lambda at: _elements(calls[at]))].call.name


def _elements(call: RecordedCall) -> int:
    return sum(prod(tensor.shape) for tensor in (*call.call.tensors, *(call.call.outputs or ())))


def _made_of(needs: int) -> str:
    """What it is computed from, in a word."""
    if needs >> FIRST_LEAF_BIT or needs & UNKNOWN_LEAF:
        return "tensors"
    return "weights" if needs & (FROZEN | LEARNS) else "numbers"


def _class_of(module: str) -> str:
    """The class of a module that is named "Block_3"."""
    return module.rpartition("_")[0] or module
