"""Whether a turn of a loop depends on what an earlier turn computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from gobrrr.model.recording import Dependence, RecordedCall
from gobrrr.model.work import Scalar
from gobrrr.observe.live.ops.flow import ANY_ARGUMENT, Access, HostRead, Region, overlap

READ_BY_HOST = ("aten::_local_scalar_dense", "aten::equal", "aten::allclose")
"""Operations that give the program values of a tensor."""
FROM_HOST = ("aten::lift_fresh", "aten::scalar_tensor", "aten::full", "aten::fill_")
"""Operations that put a number of the program into a tensor."""

TAKEN = ("aten::index", "aten::index_select", "aten::gather")
"""Operations that take a part of a tensor, which may be written back to its place with something added."""

LOOP_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::_convolution")
"""Matrix products and convolutions."""

MOST_COMPARED = 200_000
"""Pairs of regions that are compared for one loop; with more, its dependence is unknown. Chosen."""


@dataclass
class _Turns:
    """What the turns so far have written, by storage, and what was found of their dependence."""

    before: dict[int, dict[Region, None]] = field(default_factory=dict)
    own: dict[int, list[Region]] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)  # storages that only grow by sums from turn to turn
    taken: dict[int, int] = field(default_factory=dict)  # storages taken out of a carried one, by which
    outside: set[int] = field(default_factory=set)  # storages of this turn that no turn wrote
    compared: int = 0
    unknown: bool = False
    shared: set[int | None] = field(default_factory=set)  # storages that the host may have written by now

    def carried(self, region: Region) -> bool:
        """Whether an earlier turn wrote a part of it, and this turn has not overwritten it."""
        earlier = self.before.get(region.storage)
        if earlier is None:
            return False
        if any(own == region or own[1:3] == region[1:3] for own in self.own.get(region.storage, ())):
            return False
        if region in earlier:
            return True
        self.compared += len(earlier)
        if self.compared > MOST_COMPARED:
            self.unknown = True
            return False
        return any(overlap(written, region) for written in earlier)

    def ended(self) -> None:
        """A turn is over."""
        for storage, regions in self.own.items():
            self.before.setdefault(storage, {}).update(dict.fromkeys(regions))
        self.own, self.taken, self.outside = {}, {}, set()


def dependence(
    calls: Sequence[RecordedCall],
    flow: Sequence[Access | None],
    turns: Sequence[int],
    unseen: Sequence[HostRead] = (),
) -> tuple[Dependence, list[int]]:
    """How the turns of a loop depend on each other, and the calls that read what an earlier turn computed.

    `turns`: the first call of each turn, and the end of the last one. `unseen`: what the host reads without an
    operation.
    """
    seen, outside = _Turns(), list[set[int]]()
    readers: list[int] = []
    for first, stop in pairwise(turns):
        seen.shared |= {read.storage for read in unseen if read.shared and read.at <= first}
        for at in range(first, stop):
            access = flow[at] if at < len(flow) else None
            if access is None:
                seen.unknown = True
            elif not _follow(seen, calls[at].call.name, access):
                readers.append(at)
        outside.append(seen.outside)
        seen.ended()
    if readers:
        return ("layers" if _layered(outside) else "yes"), readers
    blind = any(read.storage is None for read in reads_within(unseen, turns))
    if seen.unknown or blind or over_the_host(calls, turns, unseen):
        return "unknown", []
    return ("sum" if seen.sums else "no"), []


def free_products(
    calls: Sequence[RecordedCall], flow: Sequence[Access | None], turns: Sequence[int]
) -> tuple[int, ...]:
    """The products of a loop that need no earlier turn: at the same place in each turn, and of the same weight.

    A result depends on everything that what it reads depends on. That is followed by storage, which finds too many
    dependences where tensors share one.
    """
    earlier, of_turns = set[int](), list[dict[int, set[int]]]()
    for first, stop in pairwise(turns):
        dependent, free, own = set[int](), dict[int, set[int]](), set[int]()
        for at in range(first, stop):
            access = flow[at] if at < len(flow) else None
            if access is None:
                return ()
            storages = {read.region.storage for read in access.reads}
            wrote = {write.storage for write in access.writes}
            if storages & (earlier | dependent):
                dependent |= wrote
            elif calls[at].call.name in LOOP_PRODUCTS:
                free[at - first] = storages
            own |= wrote
        earlier |= own
        of_turns.append(free)
    later = of_turns[1:]  # the first turn reads what the loop began with
    places = set(later[0]).intersection(*later) if later else set()
    same = [place for place in places if set.intersection(*(free[place] for free in later))]
    starts = turns[:-1]
    return tuple(
        sorted(start + place for start in starts for place in same if calls[start + place].call.name in LOOP_PRODUCTS)
    )


def _follow(seen: _Turns, name: str, access: Access) -> bool:
    """Take in one operation; False where it needs what an earlier turn computed, other than to add to a sum."""
    fine, adds, took = True, False, -1
    for region, argument in access.reads:
        storage = region.storage
        if storage not in seen.before and storage not in seen.own:
            seen.outside.add(storage)
        seen.unknown |= storage in seen.shared
        if storage in seen.taken:
            took = seen.taken[storage]
            adds |= access.summed is not None
            fine &= access.summed is not None or took in (write.storage for write in access.writes)
        elif seen.carried(region):
            if name in TAKEN:
                took = storage
            elif access.summed in (ANY_ARGUMENT, argument):
                adds = True
            else:
                fine = False
        elif storage in seen.sums:
            fine = False
    for region in access.writes:
        if took >= 0 and region.storage != took:
            seen.taken[region.storage] = took
        elif adds or took >= 0:
            seen.sums.add(region.storage)
        if access.covers or region.storage not in seen.own:
            seen.own.setdefault(region.storage, []).append(region)
    return fine


def _layered(outside: list[set[int]]) -> bool:
    """Whether a turn has more tensors of its own, such as weights, than all turns share: layers, no recurrence."""
    times = Counter(storage for storages in outside for storage in storages)
    own = median(sum(times[storage] == 1 for storage in storages) for storages in outside)
    return own > sum(number == len(outside) for number in times.values())


def reads_within(unseen: Sequence[HostRead], turns: Sequence[int]) -> list[HostRead]:
    """What is read without an operation within the turns. A read after the last operation may be after the loop."""
    return [read for read in unseen if turns[0] < read.at < turns[-1]]


def reads(calls: Sequence[RecordedCall], turns: Sequence[int], unseen: Sequence[HostRead]) -> int:
    """How often the program reads values of tensors within the turns."""
    return sum(calls[at].call.name in READ_BY_HOST for at in range(turns[0], turns[-1])) + len(
        reads_within(unseen, turns)
    )


def again_bytes(flow: Sequence[Access | None], turns: Sequence[int]) -> int:
    """The bytes of regions that turns read although an earlier turn had read them."""
    before, again = set[Region](), 0
    for first, stop in pairwise(turns):
        regions = {read.region for access in flow[first:stop] if access is not None for read in access.reads}
        again += sum(region.bytes for region in regions & before)
        before |= regions
    return again


def over_the_host(calls: Sequence[RecordedCall], turns: Sequence[int], unseen: Sequence[HostRead]) -> bool:
    """Whether the program reads numbers in the turns, and may pass what it makes of them to later turns."""
    inside = range(turns[0], turns[-1])
    if not reads(calls, turns, unseen):
        return False
    if any(calls[at].call.name in FROM_HOST for at in inside):
        return True
    return any(_scalars_vary(calls, turns, place) for place in range(turns[1] - turns[0]))


def _scalars_vary(calls: Sequence[RecordedCall], turns: Sequence[int], place: int) -> bool:
    """Whether the scalars of the `place`-th operation of the turns vary otherwise than as an index does."""
    own = [calls[first + place].call for first, stop in pairwise(turns) if first + place < stop]
    same = [call for call in own if call.name == own[0].name]
    scalars = ([part.text for part in call.inputs if isinstance(part, Scalar)] for call in same)
    return any(len(set(column)) > 1 and not _is_index(column) for column in zip(*scalars, strict=False))


def _is_index(column: Sequence[str]) -> bool:
    """Whether integers change by the same amount from each to the next."""
    try:
        numbers = [int(text) for text in column]
    except ValueError:
        return False
    return len({after - before for before, after in pairwise(numbers)}) == 1
