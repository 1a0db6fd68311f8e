"""Whether a turn of a loop needs what an earlier turn made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from gobrrr.model.recording import Dependence, RecordedCall
from gobrrr.model.work import Scalar
from gobrrr.observe.live.ops.flow import ANY, Access, HostRead, Region, overlap

READ_BY_HOST = ("aten::_local_scalar_dense", "aten::equal", "aten::allclose")
FROM_HOST = ("aten::lift_fresh", "aten::scalar_tensor", "aten::full", "aten::fill_")
"""Operations that put a number of the program's into a tensor."""

TAKEN = ("aten::index", "aten::index_select", "aten::gather")
"""Operations that take some of a tensor, which may be put back where they came from with something added."""

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::_convolution")

MOST_COMPARED = 200_000
"""Pairs of regions that are compared for one loop: with more it is not known whether its turns depend."""


@dataclass
class _Turns:
    """What the turns so far have written, by storage, and what was found."""

    before: dict[int, dict[Region, None]] = field(default_factory=dict)
    own: dict[int, list[Region]] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)  # storages that only grow by sums from turn to turn
    taken: dict[int, int] = field(default_factory=dict)  # storages taken out of a carried one, by which
    outside: set[int] = field(default_factory=set)  # storages of this turn that no turn wrote
    compared: int = 0
    unknown: bool = False
    shared: set[int | None] = field(
        default_factory=set
    )  # storages that the host may have written since the turn before

    def carried(self, region: Region) -> bool:
        """Whether an earlier turn wrote some of it, and this turn has not written it itself."""
        earlier = self.before.get(region.storage)
        if earlier is None:
            return False
        if any(one == region or one[1:3] == region[1:3] for one in self.own.get(region.storage, ())):
            return False
        if region in earlier:
            return True
        self.compared += len(earlier)
        if self.compared > MOST_COMPARED:
            self.unknown = True
            return False
        return any(overlap(one, region) for one in earlier)

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
    """How a loop's turns depend on each other, and the calls that read what an earlier turn made.

    `turns`: the first call of each turn, and the end of the last one. `unseen`: what the host reads without
    an operation.
    """
    seen, outside = _Turns(), list[set[int]]()
    readers: list[int] = []
    for first, stop in pairwise(turns):
        seen.shared |= {read.storage for read in unseen if read.shared and read.at <= first}
        for at in range(first, stop):
            access = flow[at] if at < len(flow) else None
            if access is None:
                seen.unknown = True
            elif not _looked(seen, calls[at].call.name, access):
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
    """The products of a loop that need nothing an earlier turn made, at the same place in each turn and of one weight.

    What an operation makes needs what it reads needs: by storage, which is more than is so where a storage is shared.
    """
    earlier, found = set[int](), list[dict[int, set[int]]]()
    for first, stop in pairwise(turns):
        needing, mine, own = set[int](), dict[int, set[int]](), set[int]()
        for at in range(first, stop):
            access = flow[at] if at < len(flow) else None
            if access is None:
                return ()
            read = {one.region.storage for one in access.reads}
            wrote = {write.storage for write in access.writes}
            if read & (earlier | needing):
                needing |= wrote
            elif calls[at].call.name in PRODUCTS:
                mine[at - first] = read
            own |= wrote
        earlier |= own
        found.append(mine)
    later = found[1:]
    # the first turn reads what the loop began with: the others tell
    places = set(later[0]).intersection(*later) if later else set()
    same = [place for place in places if set.intersection(*(one[place] for one in later))]
    starts = turns[:-1]
    return tuple(
        sorted(start + place for start in starts for place in same if calls[start + place].call.name in PRODUCTS)
    )


def _looked(seen: _Turns, name: str, access: Access) -> bool:
    """Take one operation in; False where it needs what an earlier turn made, beyond adding to a sum."""
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
            elif access.summed in (ANY, argument):
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
    """Whether each turn has tensors of its own, such as weights, more than all turns share: layers, no recurrence."""
    times = Counter(storage for one in outside for storage in one)
    alone = median(sum(times[storage] == 1 for storage in one) for one in outside)
    return alone > sum(number == len(outside) for number in times.values())


def reads_within(unseen: Sequence[HostRead], turns: Sequence[int]) -> list[HostRead]:
    """What is read without an operation within the turns; behind the last operation it may be behind the loop."""
    return [read for read in unseen if turns[0] < read.at < turns[-1]]


def reads(calls: Sequence[RecordedCall], turns: Sequence[int], unseen: Sequence[HostRead]) -> int:
    """How often the program reads values of tensors in the turns."""
    return sum(calls[at].call.name in READ_BY_HOST for at in range(turns[0], turns[-1])) + len(
        reads_within(unseen, turns)
    )


def again_bytes(flow: Sequence[Access | None], turns: Sequence[int]) -> int:
    """Bytes that turns read after an earlier one has read the same of them."""
    before, again = set[Region](), 0
    for first, stop in pairwise(turns):
        mine = {read.region for access in flow[first:stop] if access is not None for read in access.reads}
        again += sum(region.bytes for region in mine & before)
        before |= mine
    return again


def over_the_host(calls: Sequence[RecordedCall], turns: Sequence[int], unseen: Sequence[HostRead]) -> bool:
    """Whether the program reads numbers in the turns and later ones may be made from them."""
    inside = range(turns[0], turns[-1])
    if not reads(calls, turns, unseen):
        return False
    if any(calls[at].call.name in FROM_HOST for at in inside):
        return True
    return any(_wanders(calls, turns, place) for place in range(turns[1] - turns[0]))


def _wanders(calls: Sequence[RecordedCall], turns: Sequence[int], place: int) -> bool:
    """Whether the numbers that the `place`-th operation of the turns is called with differ, and do not count turns."""
    own = [calls[first + place].call for first, stop in pairwise(turns) if first + place < stop]
    same = [call for call in own if call.name == own[0].name]
    given = ([part.text for part in call.inputs if isinstance(part, Scalar)] for call in same)
    return any(len(set(column)) > 1 and not _counts(column) for column in zip(*given, strict=False))


def _counts(column: Sequence[str]) -> bool:
    """Whether numbers go up or down by as much from each to the next, as an index does."""
    try:
        numbers = [int(one) for one in column]
    except ValueError:
        return False
    return len({after - before for before, after in pairwise(numbers)}) == 1
