"""The host event to which each nanosecond of a device's window belongs.

While the device works, an instant belongs to the piece of work that the budget counts it to. While it idles, it belongs
to what the host does on the way to the next piece of work: before the launch call to the innermost event on the
launching thread, from the call on to the call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.budget.idle import CAUSE_PRIORITY, IDLE_CAUSES, LAUNCHING, PYTHON_CAUSE, Gaps, HostTime
from gobrrr.analysis.events.links import Links
from gobrrr.model.events import ABSENT, F8, I8, EventTable
from gobrrr.model.tree import HOST_KINDS


@dataclass(frozen=True)
class IdlePieces:
    """Pieces of idle time. `gap`: the gap of the budget that it is part of; `row`: the host event (-1: none was
    recorded then); `ns`: its length, exact; `part`: ns by cause (a column per cause of `CAUSES`), which sum to `ns`
    over a piece, and to the budget's over the pieces of a gap.
    """

    gap: I8
    row: I8
    ns: I8
    part: F8


@dataclass(frozen=True)
class Track:
    """The host events of one thread. `at`: all their begins and ends, sorted; `order`, `start`: their rows and begins,
    by begin."""

    at: I8
    order: I8
    start: I8

    @classmethod
    def of(cls, events: EventTable, thread: int) -> Track:
        """The track of a thread."""
        rows = np.flatnonzero((events.thread == thread) & np.isin(events.kind, [int(kind) for kind in HOST_KINDS]))
        start, stop = events.start_ns[rows], events.end_ns[rows]
        order = rows[np.lexsort((start - stop, start))]
        at = np.sort(np.concatenate([start, stop]))
        new = np.ones(len(at), dtype=bool)
        new[1:] = at[1:] != at[:-1]
        return cls(at[new], order, events.start_ns[order])

    def innermost(self, end: I8, parent: I8, when: I8) -> I8:
        """The innermost event at each instant; -1 for none."""
        at = np.searchsorted(self.start, when, side="right") - 1
        event = np.where(at >= 0, self.order[np.maximum(at, 0)] if len(self.order) else ABSENT, ABSENT)
        over = np.flatnonzero((event >= 0) & (end[np.maximum(event, 0)] <= when))
        while len(over):
            event[over] = parent[event[over]]
            over = over[(event[over] >= 0) & (end[np.maximum(event[over], 0)] <= when[over])]
        return event

    def cut(self, begin: I8, stop: I8) -> tuple[I8, I8, I8]:
        """[begin, stop) cut at every begin and end of an event: (index of the interval, begin, stop) of each piece."""
        low = np.searchsorted(self.at, begin, side="right")
        high = np.maximum(np.searchsorted(self.at, stop, side="left"), low)
        count = high - low + 1
        which = np.repeat(np.arange(len(begin)), count)
        first = np.cumsum(count) - count
        inner = np.arange(len(which)) - first[which]
        point = low[which] + inner
        opens = np.where(inner == 0, begin[which], self.at[np.maximum(point - 1, 0)] if len(self.at) else 0)
        closes = np.where(
            inner == count[which] - 1,
            stop[which],
            self.at[np.minimum(point, max(len(self.at) - 1, 0))] if len(self.at) else 0,
        )
        kept = closes > opens
        return which[kept], opens[kept], closes[kept]


def idle_pieces(events: EventTable, links: Links, gaps: Gaps, host: HostTime, parent: I8, main: int) -> IdlePieces:
    """The pieces of all gaps of a device. `parent`: the event around each row; `main`: the program's thread."""
    launch = _launch_of(links, gaps)
    call = np.maximum(launch, 0)
    thread = np.where(launch >= 0, events.thread[call], host.usual).astype(np.int64)
    reach = np.where(launch >= 0, np.clip(events.start_ns[call], gaps.start, gaps.stop), gaps.stop)
    which, opens, closes, row, own = _walked(events, parent, thread, gaps.start, reach)
    if main != ABSENT:
        which, opens, closes, row, own = _elsewhere(events, parent, main, which, opens, closes, row, own)
    cause = _causes(host, own, opens)
    late = np.flatnonzero(gaps.stop > reach)
    handed = np.full(len(late), IDLE_CAUSES.index(LAUNCHING))
    gap = np.concatenate([which, late])
    ns = np.concatenate([closes - opens, (gaps.stop - reach)[late]])
    rows = np.concatenate([row, launch[late]])
    return IdlePieces(gap, rows, ns, _settled(gap, np.concatenate([cause, handed]), ns, gaps))


def _launch_of(links: Links, gaps: Gaps) -> I8:
    """The call that launches the work after each gap; -1 for none."""
    if not len(links.device):
        return np.full(len(gaps), ABSENT, dtype=np.int64)
    at = np.minimum(np.searchsorted(links.device, gaps.next_work), len(links.device) - 1)
    return np.where(gaps.next_work >= 0, links.launch[at], ABSENT)


def _walked(events: EventTable, parent: I8, thread: I8, begin: I8, stop: I8) -> tuple[I8, I8, I8, I8, I8]:
    """Intervals [begin, stop) of threads, cut at the threads' events: (interval, begin, stop, innermost event, thread)
    of each piece."""
    end = events.end_ns
    parts = []
    for number in np.unique(thread):
        selected = np.flatnonzero((thread == number) & (stop > begin))
        track = Track.of(events, int(number))
        which, opens, closes = track.cut(begin[selected], stop[selected])
        row = track.innermost(end, parent, opens)
        parts.append((selected[which], opens, closes, row, np.full(len(which), number)))
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return none, none, none, none, none
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _elsewhere(
    events: EventTable, parent: I8, main: int, which: I8, opens: I8, closes: I8, row: I8, own: I8
) -> tuple[I8, I8, I8, I8, I8]:
    """The same pieces, on the program's thread where the launching thread was in no event: it waits for the program."""
    lost = (row < 0) & (own != main)
    if not lost.any():
        return which, opens, closes, row, own
    thread = np.full(int(lost.sum()), main, dtype=np.int64)
    inner, begin, stop, innermost, _ = _walked(events, parent, thread, opens[lost], closes[lost])
    kept = ~lost
    return (
        np.concatenate([which[kept], which[lost][inner]]),
        np.concatenate([opens[kept], begin]),
        np.concatenate([closes[kept], stop]),
        np.concatenate([row[kept], innermost]),
        np.concatenate([own[kept], own[lost][inner]]),
    )


def _causes(host: HostTime, thread: I8, when: I8) -> I8:
    """The cause of a thread's time at each instant, in the budget's order of causes."""
    result = np.full(len(when), IDLE_CAUSES.index(PYTHON_CAUSE), dtype=np.int64)
    for axis in host.axes:
        on_axis = np.flatnonzero(np.isin(thread, axis.threads))
        at = axis.at(thread[on_axis], when[on_axis])
        open_ = np.ones(len(on_axis), dtype=bool)
        for cause, taken in zip(CAUSE_PRIORITY, axis.taken[1:], strict=True):
            inside = open_ & (taken.until(at + 1) > taken.until(at))
            result[on_axis[inside]] = IDLE_CAUSES.index(cause)
            open_ &= ~inside
    return result


def _settled(gap: I8, cause: I8, ns: I8, gaps: Gaps) -> F8:
    """Nanoseconds of each piece by cause, such that each gap's sums are the budget's.

    The budget judges a gap as a whole (the bubble after a wait, staging before a copy, a launch that is too long).
    Time that it moves from one cause to another is taken from all of the gap's pieces of that cause in proportion.
    """
    causes = len(IDLE_CAUSES)
    seen = np.bincount(gap * causes + cause, weights=ns, minlength=len(gaps) * causes).astype(np.float64)
    seen = seen.reshape(len(gaps), causes)
    budget = gaps.ns.astype(np.float64)
    kept = np.minimum(seen, budget)
    moves, lacks = seen - kept, budget - kept
    stays = np.divide(kept, seen, out=np.ones_like(seen), where=seen > 0)[gap, cause]
    part = np.zeros((len(gap), causes))
    part[np.arange(len(gap)), cause] = ns * stays
    total = lacks.sum(axis=1)
    goes = np.flatnonzero(moves[gap, cause] > 0)
    share = np.divide(lacks, total[:, None], out=np.zeros_like(lacks), where=total[:, None] > 0)
    part[goes] += (ns[goes] * (1.0 - stays[goes]))[:, None] * share[gap[goes]]
    return part
