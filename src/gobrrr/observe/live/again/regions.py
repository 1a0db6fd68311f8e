"""Operations that need not run, put together to what a program would write once: a module's call, or a line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gobrrr.model.recording import Again, AgainKind, RecordedCall, Site
from gobrrr.observe.live.again.leaves import KEPT, LEARNS, OTHERS, UNKNOWN, Leaves
from gobrrr.observe.live.again.values import Row, Values

LOOKS = 2
"""Looks that are needed to say what stays from step to step."""
FILLS = (
    "aten::zeros",
    "aten::ones",
    "aten::full",
    "aten::new_",
    "aten::fill",
    "aten::scalar_tensor",
    "aten::zeros_like",
)
"""Operations that write one number: what is made of them alone is made as fast as it is read."""


PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::linear", "aten::matmul", "aten::conv")
"""A function without any of these that is given all rows again lays them out, as around a cache."""


class Invocation(NamedTuple):
    """One call of a module, or of a function of the program: the call around it (-1: none), the line that makes it, the
    module's name or "function()"."""

    around: int
    line: str | None
    module: str


@dataclass(frozen=True)
class Look:
    """One step: its values, its modules' calls, in which of them each operation ran.

    `given`: the number and the needs of each tensor that a module at the top was called with.
    """

    values: Values
    calls: list[Invocation]
    within: dict[int, int]
    given: set[tuple[int, int]]


@dataclass(frozen=True)
class _Place:
    kind: AgainKind
    source: str | None
    module: str | None
    op: str | None


def again(
    looks: Sequence[Look],
    leaves: Leaves,
    grown: dict[int, tuple[int, int]],
    functions: tuple[Look, dict[int, tuple[int, int]]],
    calls: Sequence[RecordedCall],
    sites: Sequence[Site],
) -> tuple[Again, ...]:
    """All that was seen, by place. `grown`: calls of modules that computed rows again, with their numbers of rows;
    `functions`: the calls of functions outside of modules, and which of these did."""
    first = looks[0]
    counts = {at: row for at, row in first.values.rows.items() if at < len(calls) and _counts(calls[at])}
    always = _always(looks, leaves, counts, calls)
    within = _within(counts) - always
    rows = _rows(first, counts, grown)
    plain, grown_plain = functions
    others = {at: row for at, row in _rows(plain, counts, grown_plain).items() if at not in rows}
    products = {_outermost(plain, at, grown_plain) for at in others if calls[at].call.name.startswith(PRODUCTS)}
    others = {at: other for at, other in others.items() if _outermost(plain, at, grown_plain) in products}
    prefix = {*rows, *others}
    found = _by_place("steps", first, counts, always - prefix, calls, sites, leaves)
    found += _by_place("turns", first, counts, within - prefix, calls, sites, leaves)
    return (*found, *_prefixes(first, rows, grown), *_prefixes(plain, others, grown_plain))


def _counts(call: RecordedCall) -> bool:
    """Not what a backward pass does: its gradients are others, and a checkpoint does its work again on purpose."""
    return call.phase == "forward" and not call.recomputed


# -- the same number


def _always(looks: Sequence[Look], leaves: Leaves, counts: dict[int, Row], calls: Sequence[RecordedCall]) -> set[int]:
    """Operations that the step before did as well, on what is not the step's data."""
    if len(looks) < LOOKS:
        return set()
    before = {row.number for row in looks[1].values.rows.values()}
    stays = _staying(looks, leaves, before, training=any(call.phase == "backward" for call in calls))
    same = {at for at, row in counts.items() if row.number in before and not row.needs & ~stays}
    if len(same) == len(counts):
        return set()  # nothing in this step varies: it is run on the same data on purpose
    return _useful(counts, same)


def _staying(looks: Sequence[Look], leaves: Leaves, before: set[int], *, training: bool) -> int:
    """Bits of what stays: weights that don't learn, and tensors that are no step's data."""
    bits = KEPT if training else KEPT | LEARNS
    others = leaves.others
    # data that differ from look to look: what does not is none of them
    changing = any(
        not one.written and one.numbers.get(0, set()) != one.numbers.get(1, set()) and one.numbers.get(1)
        for _, one in others
    )
    # data that the step makes at random: what they are not made of is none of them
    random = any(not needs & LEARNS for _, needs in looks[0].given - looks[1].given)
    batch = 0
    for _, needs in looks[0].given | looks[1].given:
        batch |= needs
    drawn = 0
    for row in looks[0].values.rows.values():
        if row.draws and row.number not in before:
            drawn |= row.draws
    for key, leaf in others:
        elsewhere = leaf.views.get(0) != leaf.views.get(1)
        kept = key in leaves.attributes or leaves.registered(key)
        constant = changing or kept or (random and not leaf.bit & batch)
        if not leaf.written and (constant or leaf.bit & drawn or (leaf.large and elsewhere)):
            bits |= leaf.bit
    return bits & ~UNKNOWN


def _within(counts: dict[int, Row]) -> set[int]:
    """Operations that the step itself had done before."""
    seen: set[int] = set()
    found = set()
    for at, row in sorted(counts.items()):
        if row.number in seen:
            found.add(at)
        seen.add(row.number)
    return _useful(counts, found)


def _useful(counts: dict[int, Row], same: set[int]) -> set[int]:
    """Without what is written into afterwards, and without what no other operation reads, through others of these."""
    touched: dict[int, list[int]] = defaultdict(list)
    for at, row in sorted(counts.items()):
        for key in row.storages:
            touched[key].append(at)
    for places in touched.values():
        last = next((at for at in reversed(places) if at not in same and counts[at].into), -1)
        same = same - {at for at in places if at < last}
    wanted = {state for at, row in counts.items() if at not in same for state in row.read}
    useful = set()
    for at in sorted(same, reverse=True):
        if wanted & set(counts[at].made):
            useful.add(at)
            wanted |= set(counts[at].read)
    return useful


# -- rows


def _rows(look: Look, counts: dict[int, Row], grown: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Operations within calls of modules that computed rows again, with the numbers of rows."""
    rows: dict[int, tuple[int, int]] = {}
    for at in counts:
        call = _outermost(look, at, grown)
        if call >= 0:
            rows[at] = grown[call]
    return rows


def _prefixes(look: Look, rows: dict[int, tuple[int, int]], grown: dict[int, tuple[int, int]]) -> list[Again]:
    groups: dict[tuple[str | None, str], list[int]] = defaultdict(list)
    for at in sorted(rows):
        invocation = look.calls[_outermost(look, at, grown)]
        groups[
            invocation.line, invocation.module if invocation.module.endswith("()") else _kind(invocation.module)
        ].append(at)
    return [
        Again(
            kind="rows",
            source=line,
            module=None if module.endswith("()") else module,
            op=module if module.endswith("()") else None,
            calls=tuple(some),
            times=len({rows[at] for at in some}),
            rows=tuple(rows[at] for at in some),
            whole=True,
        )
        for (line, module), some in groups.items()
    ]


def _outermost(look: Look, at: int, wanted: Container[int]) -> int:
    """The outermost of the wanted calls of modules around an operation; -1 for none."""
    call, found = look.within.get(at, -1), -1
    while call >= 0:
        found = call if call in wanted else found
        call = look.calls[call].around
    return found


# -- places


def _by_place(
    kind: AgainKind,
    look: Look,
    counts: dict[int, Row],
    same: set[int],
    calls: Sequence[RecordedCall],
    sites: Sequence[Site],
    leaves: Leaves,
) -> list[Again]:
    whole = _whole(look, counts, same)
    groups: dict[_Place, list[int]] = defaultdict(list)
    for at in sorted(same):
        groups[_place(kind, at, look, whole, calls, sites)].append(at)
    found = []
    for place, some in groups.items():
        if all(calls[at].call.name.startswith(FILLS) for at in some):
            continue
        needs = 0
        for at in some:
            needs |= counts[at].needs
        times = Counter(counts[at].number for at in some)
        found.append(
            Again(
                kind=kind,
                source=place.source,
                module=place.module,
                op=place.op or _main(some, calls),
                calls=tuple(some),
                times=max(times.values()) + (kind == "turns"),
                of=_of(needs),
                whole=place.op is None,
            )
        )
    return found


def _whole(look: Look, counts: dict[int, Row], same: set[int]) -> set[int]:
    """Calls of modules all of whose operations are among these."""
    total, mine = Counter[int](), Counter[int]()
    for at in counts:
        call = look.within.get(at, -1)
        while call >= 0:
            total[call] += 1
            mine[call] += at in same
            call = look.calls[call].around
    return {call for call, count in total.items() if mine[call] == count}


def _place(
    kind: AgainKind, at: int, look: Look, whole: set[int], calls: Sequence[RecordedCall], sites: Sequence[Site]
) -> _Place:
    """The outermost call of a module that is all of it the same; else the operation's own line."""
    top = _outermost(look, at, whole)
    if top >= 0:
        invocation = look.calls[top]
        return _Place(kind, invocation.line, _kind(invocation.module), None)
    site = sites[calls[at].site]
    module = _kind(site.modules[-1]) if site.modules else None
    return _Place(kind, site.user or site.source, module, "")


def _main(some: list[int], calls: Sequence[RecordedCall]) -> str:
    """The operation that stands for several: the one with the most elements."""
    return calls[max(some, key=lambda at: _size(calls[at]))].call.name


def _size(call: RecordedCall) -> int:
    total = 0
    for tensor in (*call.call.tensors, *(call.call.outputs or ())):
        size = 1
        for length in tensor.shape:
            size *= length
        total += size
    return total


def _of(needs: int) -> str:
    """What it is computed from."""
    if needs >> OTHERS or needs & UNKNOWN:
        return "tensors"
    return "weights" if needs & (KEPT | LEARNS) else "numbers"


def _kind(module: str) -> str:
    """The class of a module, of its name "Block_3"."""
    return module.rpartition("_")[0] or module
