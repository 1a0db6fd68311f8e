"""A step as a graph that can be replayed and changed: the host's time, the device's work, and the waits of both.

Kernel durations in a trace are right; host times are not, because recording every event costs the host time. The graph
keeps each kernel's duration, the order in which the host issues work, the order within streams, and the waits of host
and device for each other, and takes the cost of recording out of the host's time. A replayed wait lasts as long as the
device needs, not as long as it was recorded.

Waits of streams for events come from the profiler's records (`cuda_sync` events), where there are some. Other waits are
inferred: a kernel that started later than its launch and its stream allowed waited for the device work that ended last
before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import communicates
from gobrrr.analysis.events.host_record import HostRecord, host_record
from gobrrr.analysis.events.intervals import NO_SPANS, Spans, covered, union
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.observer import NO_COST, ObserverCost
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.events.stream_waits import stream_waits
from gobrrr.model.events import I8, EventKind, EventTable

F8 = NDArray[np.float64]
Mask = NDArray[np.bool_]

LATE_START_NS = 3_000
"""A kernel that starts more than this after it could have started waited for something that is not recorded. Chosen,
not measured."""

LONGEST_PAUSE_NS = 20_000
"""A longer pause between queued pieces of work is not the device's own. Chosen, not measured."""

UNRECORDED_NS = 200_000
"""Work that starts at least this much after all recorded reasons allow keeps the delay, for an unknown reason. Chosen,
not measured."""


@dataclass(frozen=True)
class StepGraph:
    """One rank's window as the simulator runs it. A change is predicted by changing this graph and replaying it.

    Host, from `record`: `at`: all begins and ends of its events (recorded clock, sorted, unique); `left[i]`: the time
    in ns that it needs from `at[i]` to `at[i + 1]` without the profiler and without waiting. Waits, by start: `waits`:
    the rows of the calls that block until the device is done; `awaited`: the work that each waits for (index into
    `links.device`, -1: none is recorded); `reaction`: how long the host takes to notice its end; `own`: ns of waiting
    for something else; `cut`: the host no longer waits there.

    Work, parallel to `links.device`, in ns: `issued`: when the host handed it over (recorded clock); `called`: the time
    that orders the launches; `ahead`: it was issued before the recording; `duration`; `latency`: from the issue to the
    earliest begin; `held`: a delay for an unknown reason; `gap`: the stream's own pause after it; `stream`: a number;
    `after`: the work of another stream that it waits for (-1: none); `gone`: it no longer runs; `place`: it occupies a
    place in the launch queue (in a captured graph only the first piece does); `floor`: the least time that a machine
    needs for it (NaN: not known); `base`: its duration before any remedy.

    `serial`: host and device are one processor (a CPU): work runs inside the host's time, and nothing overlaps.
    `until`: the host's time from there on (recorded clock) is not replayed; None: all is. `pace`: the host's time as a
    multiple of the recorded time, also for additional tasks of a change; `burden`: such tasks before work, in ns over
    all recorded steps at the recorded pace.
    """

    events: EventTable
    links: Links
    start: int
    stop: int
    at: I8
    left: F8
    waits: I8
    awaited: I8
    reaction: F8
    own: F8
    cut: Mask
    issued: I8
    called: I8
    ahead: Mask
    duration: F8
    latency: F8
    held: F8
    gap: F8
    stream: I8
    after: I8
    gone: Mask
    place: Mask
    floor: F8
    base: F8
    record: HostRecord
    serial: bool = False
    until: int | None = None
    pace: float = 1.0
    burden: float = 0.0

    def passed(self, when: I8) -> F8:
        """Host time without waits at instants of the recorded clock; outside of the record it passes unchanged."""
        if not len(self.at):
            return when.astype(np.float64)
        inside = np.interp(when, self.at, np.concatenate([[0.0], np.cumsum(self.left)]))
        result: F8 = inside + np.minimum(when - self.at[0], 0) + np.maximum(when - self.at[-1], 0)
        return result


def host_needs(graph: StepGraph, steps: StepWindow, count: int) -> float:
    """The host's time for the last `count` recorded steps, without waits, in ns; 0 where steps are not marked.

    It is a lower bound of a loop's time, however far ahead of the device the host was when the recording began.
    """
    if not steps.marked or steps.host_stop is None or not 0 < count <= len(steps.begins):
        return 0.0
    return float(np.diff(graph.passed(np.array([steps.begins[-count], steps.host_stop])))[0])


def graph_of(
    events: EventTable,
    links: Links,
    cost: ObserverCost,
    start: int,
    stop: int,
    floor_ns: F8 | None = None,
    once: Spans = NO_SPANS,
) -> StepGraph:
    """The graph of the window [start, stop) with recording at `cost` taken out of the host's time.

    `floor_ns`: the floor of each piece of work, parallel to `links.device`; `once`: host time that is left out.
    """
    record = host_record(events, links, start, stop, once)
    at, left, waits = record.at, record.left(cost), record.waits
    device = links.device
    begin, end = events.start_ns[device], events.end_ns[device]
    known = links.launch >= 0
    row = np.maximum(links.launch, 0)
    call = np.where(known, events.start_ns[row], begin)
    # work may begin while its launch call still runs: a long call loads code first
    issued = np.where(known, np.clip(begin, call, events.end_ns[row]), begin)
    stream = _streams(events, device)
    free = _previous_end(stream, end)
    latency = _latency((begin - issued)[known & (free <= issued)])
    kept = _kept_order(events, device, stream, begin, end, call)
    possible = np.maximum(issued + latency, np.maximum(free, np.where(kept >= 0, end[np.maximum(kept, 0)], 0)))
    late = _inferred(begin, end, possible, call)
    wait_start, wait_end = events.start_ns[waits], record.until
    awaited, reaction = _awaited(wait_start, wait_end, call, end)
    return StepGraph(
        events=events,
        links=links,
        start=start,
        stop=stop,
        at=at,
        left=left,
        waits=waits,
        awaited=awaited,
        reaction=reaction,
        # a wait that no recorded work explains (for another process or device) keeps its length
        own=np.where(awaited < 0, wait_end - wait_start, 0).astype(np.float64),
        cut=np.zeros(len(waits), dtype=bool),
        issued=issued,
        called=call,
        ahead=_backlog(begin, known),
        duration=(end - begin).astype(np.float64),
        latency=np.minimum(begin - issued, latency).astype(np.float64),
        held=np.where((late < 0) & (begin - possible >= UNRECORDED_NS), begin - possible, 0).astype(np.float64),
        gap=_gaps(begin, end, stream, issued),
        stream=stream,
        after=_later_work(stream_waits(events, device, call), np.where(late >= 0, late, kept), end),
        gone=np.zeros(len(device), dtype=bool),
        place=_places(links, call),
        base=(end - begin).astype(np.float64),
        record=record,
        floor=np.full(len(device), np.nan) if floor_ns is None else floor_ns,
    )


def recosted(graph: StepGraph, cost: ObserverCost) -> StepGraph:
    """The recorded graph, with another cost of recording taken out of the host's time."""
    return replace(graph, left=graph.record.left(cost))


def serial_graph(events: EventTable, links: Links, start: int, stop: int, floor_ns: F8 | None = None) -> StepGraph:
    """The graph of a CPU's window. Its work runs within the host's time: there are no queues and no waits."""
    plain = graph_of(events, links, NO_COST, start, stop, floor_ns)
    begin, end = events.start_ns[links.device], events.end_ns[links.device]
    inside = (end >= start) & (begin <= stop)
    at = np.unique(np.concatenate([plain.at, begin[inside], end[inside]]))
    busy = covered(union(begin, end), at[:-1], at[1:])
    nothing = np.empty(0, dtype=np.int64)
    return replace(
        plain,
        at=at,
        left=np.diff(at).astype(np.float64) - busy,
        waits=nothing,
        awaited=nothing,
        reaction=np.empty(0),
        own=np.empty(0),
        cut=np.empty(0, dtype=bool),
        issued=begin,
        gap=np.zeros(len(begin)),
        serial=True,
    )


def _streams(events: EventTable, rows: I8) -> I8:
    """A number for each (device, stream) pair."""
    _, device = np.unique(events.device[rows], return_inverse=True)
    numbers, stream = np.unique(events.stream[rows], return_inverse=True)
    return np.asarray(device).reshape(-1) * max(len(numbers), 1) + np.asarray(stream).reshape(-1)


def _backlog(start: I8, known: Mask) -> Mask:
    """Work without a launch before the first work with one: it was issued before the recording began."""
    if not known.any():
        return np.zeros(len(start), dtype=bool)
    result: Mask = ~known & (start < start[known].min())
    return result


def _latency(seen: I8) -> int:
    """The time from a launch on an idle stream to the begin of its work: the 1st percentile of the positive ones."""
    behind = seen[seen > 0]
    return int(np.percentile(behind, 1, method="lower")) if len(behind) else 0


def _places(links: Links, call: I8) -> Mask:
    """Which work occupies a place in the launch queue: all work of a captured graph together occupies one."""
    place = ~links.in_graph
    inside = np.flatnonzero(links.in_graph & (links.launch >= 0))
    order = inside[np.lexsort((inside, call[inside], links.launch[inside]))]
    first = np.ones(len(order), dtype=bool)
    first[1:] = links.launch[order][1:] != links.launch[order][:-1]
    place[order[first]] = True
    return place


def _later_work(recorded: I8, inferred: I8, end: I8) -> I8:
    """For each piece of work, the later of the recorded and the inferred work that it waits for (-1: none)."""
    either = (recorded >= 0) & (inferred >= 0)
    later = np.where(end[np.maximum(recorded, 0)] >= end[np.maximum(inferred, 0)], recorded, inferred)
    return np.where(either, later, np.maximum(recorded, inferred))


def _previous_end(stream: I8, end: I8) -> I8:
    """The latest end on the same stream before each piece of work (0 for the first), in the order of the work."""
    order = np.argsort(stream, kind="stable")
    ranked = np.sort(end)
    # ends as ranks, each stream's offset beyond the previous stream's: one running maximum serves all streams
    first = np.concatenate([[True], np.diff(stream[order]) != 0]) if len(order) else np.zeros(0, dtype=bool)
    beyond = np.cumsum(first) * len(end)
    reach = np.maximum.accumulate(np.searchsorted(ranked, end[order]) + beyond) - beyond
    result = np.zeros(len(end), dtype=np.int64)
    result[order[1:]] = np.where(first[1:], 0, ranked[reach[:-1]])
    return result


def _gaps(start: I8, end: I8, stream: I8, issued: I8) -> F8:
    """The device's own pause after each piece of work, before the next on its stream.

    It is the recorded pause where the next work was already issued, elsewhere the median of those.
    """
    order = np.lexsort((start, stream))
    before, after = order[:-1], order[1:]
    pause = start[after] - end[before]
    queued = (
        (stream[after] == stream[before]) & (issued[after] <= end[before]) & (pause >= 0) & (pause <= LONGEST_PAUSE_NS)
    )
    typical = float(np.median(pause[queued])) if queued.any() else 0.0
    result = np.full(len(start), typical)
    result[before[queued]] = pause[queued]
    return result


def _inferred(start: I8, end: I8, possible: I8, call: I8) -> I8:
    """For work that started late without a recorded reason, the work that ended last before it; else -1."""
    late = start > possible + LATE_START_NS
    result = np.full(len(start), -1, dtype=np.int64)
    if not late.any():
        return result
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], start[late] + 1) - 1
    candidate = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    late_work = np.flatnonzero(late)
    candidate = _launched_before(candidate, late_work, order, at, call)
    close = (candidate >= 0) & (start[late] - end[np.maximum(candidate, 0)] <= LATE_START_NS)
    earlier = (candidate != late_work) & (start[np.maximum(candidate, 0)] < start[late_work])
    result[late] = np.where(close & earlier, candidate, -1)
    return result


MOST_EARLIER_WORK = 64
"""How many earlier pieces of work are examined. Chosen, not measured: it bounds the time."""


def _launched_before(candidate: I8, work: I8, order: I8, at: I8, call: I8) -> I8:
    """The last piece in `order` up to `at` that was launched no later than the work that waits for it; else -1."""
    candidate, at = candidate.copy(), at.copy()
    for _ in range(MOST_EARLIER_WORK):
        wrong = (candidate >= 0) & (call[np.maximum(candidate, 0)] > call[work])
        if not wrong.any():
            return candidate
        at = np.where(wrong, at - 1, at)
        candidate = np.where(wrong, np.where(at >= 0, order[np.maximum(at, 0)], -1), candidate)
    return np.where((candidate >= 0) & (call[np.maximum(candidate, 0)] > call[work]), -1, candidate)


def _kept_order(events: EventTable, rows: I8, stream: I8, start: I8, end: I8, call: I8) -> I8:
    """For each compute kernel, the last one that had ended before it began, where that is on another stream; else -1.

    Traces often do not record which events a stream waits for, and a slow host hides such waits. So compute streams
    that did not overlap stay in order. Copies and communication are meant to overlap, and are not held.
    """
    result = np.full(len(rows), -1, dtype=np.int64)
    talks = communicates(events.names)
    compute = np.flatnonzero((events.kind[rows] == EventKind.KERNEL) & ~talks[events.name[rows]])
    if len(np.unique(stream[compute])) < 2:
        return result
    order = compute[np.argsort(end[compute], kind="stable")]
    at = np.searchsorted(end[order], start[compute], side="right") - 1
    candidate = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    candidate = _launched_before(candidate, compute, order, at, call)
    other = (candidate >= 0) & (stream[np.maximum(candidate, 0)] != stream[compute])
    result[compute] = np.where(other, candidate, -1)
    return result


def _awaited(wait_start: I8, wait_end: I8, call: I8, end: I8) -> tuple[I8, F8]:
    """For each wait, the work that it waited for (-1: it did not block), and the host's time to notice its end."""
    target = np.full(len(wait_start), -1, dtype=np.int64)
    reaction = np.zeros(len(wait_start))
    if not len(end):
        return target, reaction
    order = np.argsort(end, kind="stable")
    # a wait may be for work from when the work is both launched and ended
    known = np.maximum(end, call + 1)[order]
    by_known = np.argsort(known, kind="stable")
    last = np.maximum.accumulate(by_known)  # among the work known by then, what ended last, as a position in `order`
    at = np.searchsorted(known[by_known], wait_end, side="right") - 1
    last_done = order[last[np.maximum(at, 0)]]
    blocked = (at >= 0) & (end[last_done] > wait_start)
    target[blocked] = last_done[blocked]
    reaction[blocked] = (wait_end - end[last_done])[blocked]
    return target, reaction
