"""Replay a step's own dependency graph with other host times: what it would take without the profiler watching.

Kernel durations in a trace are right; host times are not: every recorded event costs the host time to record. The
replay keeps each kernel's duration, the order in which the host issues work, the streams' order and the waits of host
and device for each other, and takes the cost of recording out of the host's time. A wait lasts as long as the device
needs, never as long as it lasted.

What is not recorded is inferred: a kernel that started later than its launch and its stream allowed was waiting for the
device work that ended last before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replaced

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.calls import Call, classify, communicates
from gobrrr.analysis.intervals import EMPTY, Spans, covered, union
from gobrrr.analysis.links import Links
from gobrrr.analysis.observer import ObserverCost
from gobrrr.model.events import I8, EventTable, Kind

SLACK_NS = 3_000
"""A kernel that starts this much later than it could have was waiting for something that is not recorded."""

LONGEST_PAUSE_NS = 20_000
"""A pause between queued work that is longer than this is not the device's own."""

UNRECORDED_NS = 200_000
"""Work that starts this much later than all that is recorded allowed keeps the delay: its reason is unknown."""

INPUT_SHARE = 0.9
"""While data is loaded the host computes (decoding, collating) and dispatches little: little of that time is the
profiler's."""

QUEUE_DEPTH = 1_024
"""Launches that a CUDA stream takes before a further launch blocks the host (docs/design.md, section 7)."""

HOST_KINDS = (Kind.OP, Kind.ANNOTATION, Kind.PYTHON, Kind.RUNTIME)


@dataclass(frozen=True)
class Host:
    """The host's timeline on one clock: `at` are all begins and ends (sorted, unique), `passed` the deflated time."""

    at: I8
    passed: NDArray[np.float64]
    waits: I8  # rows of the calls that block until the device is done, by start


def replay(
    events: EventTable,
    links: Links,
    cost: ObserverCost,
    start: int,
    stop: int,
    *,
    without: I8 | None = None,
    cut_all: bool = False,
) -> EventTable:
    """The same events with the times that they would have had, as far as the window [start, stop) goes.

    `without`: rows of waits that the host no longer does (`cut_all`: none of them). Deterministic. Rows outside the
    window keep their distance to its edge.
    """
    host = _host(events, links, cost, start, stop)
    cut = (
        np.ones(len(host.waits), dtype=bool) if cut_all else np.isin(host.waits, without if without is not None else [])
    )
    new_start, resumed = _simulate(events, links, host, cut)
    return _moved(events, links, host, new_start, resumed)


def _host(events: EventTable, links: Links, cost: ObserverCost, start: int, stop: int) -> Host:
    rows = _host_rows(events, start, stop)
    at, charge = host_charges(events, cost, start, stop)
    waits = _waits(events, links, rows)
    elapsed = np.diff(at).astype(np.float64)
    own = _overhead(events) if cost.own_work else EMPTY
    if len(own.start):
        elapsed = np.maximum(elapsed - covered(own, at[:-1], at[1:]), 0)
    share = np.full(len(elapsed), cost.least_share)
    share[covered(_input(events, rows), at[:-1], at[1:]) > 0] = max(cost.least_share, INPUT_SHARE)
    left = np.maximum(elapsed - charge, share * elapsed) * cost.pace
    blocked = union(events.start_ns[waits], events.end_ns[waits])
    if len(blocked.start):
        left = np.where(covered(blocked, at[:-1], at[1:]) > 0, 0.0, left)
    passed = np.concatenate([[0.0], np.cumsum(left)]) if len(at) else np.empty(0)
    return Host(at, passed, waits)


def _host_rows(events: EventTable, start: int, stop: int) -> I8:
    rows = events.of(*HOST_KINDS)
    return rows[(events.end_ns[rows] >= start) & (events.start_ns[rows] <= stop)]


def host_charges(events: EventTable, cost: ObserverCost, start: int, stop: int) -> tuple[I8, NDArray[np.float64]]:
    """(all begins and ends of the host's events in the window, sorted; what recording costs each stretch between)."""
    rows = _host_rows(events, start, stop)
    price = np.zeros(256)
    for kind, value in zip(HOST_KINDS, (cost.op_ns, cost.annotation_ns, cost.python_ns, cost.runtime_ns), strict=True):
        price[int(kind)] = value / 2
    each = price[events.kind[rows]]
    at, where = np.unique(np.concatenate([events.start_ns[rows], events.end_ns[rows]]), return_inverse=True)
    charge = np.bincount(where, weights=np.concatenate([each, each]), minlength=len(at)).astype(np.float64)
    # an event's begin is charged to the stretch that follows it, its end to the stretch that it closes
    return at, _charged(charge)


def _input(events: EventTable, rows: I8) -> Spans:
    """Where the host loads data."""
    loads = rows[classify(events.names)[events.name[rows]] == Call.INPUT]
    return union(events.start_ns[loads], events.end_ns[loads])


def _charged(charge: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half of a boundary's cost to the stretch before it, half to the one after."""
    return (charge[:-1] + charge[1:]) / 2


def _overhead(events: EventTable) -> Spans:
    """Time that the profiler itself recorded as its own."""
    rows = events.of(Kind.OVERHEAD)
    return union(events.start_ns[rows], events.end_ns[rows]) if len(rows) else EMPTY


def _waits(events: EventTable, links: Links, rows: I8) -> I8:
    """Calls that block the host until the device is done: synchronizations, and copies to pageable memory."""
    call = classify(events.names)
    runtime = rows[events.kind[rows] == Kind.RUNTIME]
    synchronizes = runtime[call[events.name[runtime]] == Call.WAIT]
    copies = links.launch[(events.kind[links.device] == Kind.MEMCPY) & (links.launch >= 0) & _blocks(events, links)]
    copies = copies[np.isin(copies, runtime)]
    waits = np.unique(np.concatenate([synchronizes, copies]))
    waits = waits[np.argsort(events.start_ns[waits], kind="stable")]
    return waits[~_others_busy(events, waits, runtime)]


def _others_busy(events: EventTable, waits: I8, runtime: I8) -> NDArray[np.bool_]:
    """Whether another thread issues work while this one waits: then the wait is not on the path."""
    if not len(waits):
        return np.empty(0, dtype=bool)
    busy = np.zeros(len(waits), dtype=bool)
    order = np.argsort(events.start_ns[runtime], kind="stable")
    starts, threads = events.start_ns[runtime][order], events.thread[runtime][order]
    for thread in np.unique(events.thread[waits]):
        mine = np.flatnonzero(events.thread[waits] == thread)
        other = starts[threads != thread]
        first = np.searchsorted(other, events.start_ns[waits[mine]], side="right")
        last = np.searchsorted(other, events.end_ns[waits[mine]], side="left")
        busy[mine] = last > first
    return busy


def _blocks(events: EventTable, links: Links) -> NDArray[np.bool_]:
    """Device-to-host copies into pageable memory, and copies by a call without "Async" in its name."""
    pageable = np.array(["Device -> Pageable" in name for name in events.names], dtype=bool)
    plain = np.array([name in ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream") for name in events.names], dtype=bool)
    return pageable[events.name[links.device]] | (plain[events.name[np.maximum(links.launch, 0)]] & (links.launch >= 0))


def _simulate(
    events: EventTable, links: Links, host: Host, cut: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(new start of each piece of device work, time at which the host resumes after each wait)."""
    plan = _plan(events, links, host)
    begin = [0.0] * len(links.device)
    resumed = [0.0] * len(host.waits)
    stream_free: dict[int, float] = {}
    ends: list[float] = [0.0] * len(links.device)
    skipped = cut.tolist()
    shift = 0.0  # how much later than its deflated time the host is, for all the waits so far
    issued = 0
    recent: list[float] = []
    for is_wait, index, ready in plan.anchors:
        if is_wait:
            until = ready + shift
            target = plan.awaited[index]
            if skipped[index]:
                resumed[index] = until
                continue
            if target >= 0:
                until = max(until, ends[target] + plan.reaction[index])
            until += plan.own[index]
            shift += until - (ready + shift)
            resumed[index] = until
            continue
        earliest = ready + shift
        if issued >= QUEUE_DEPTH and earliest < recent[issued - QUEUE_DEPTH]:
            shift += recent[issued - QUEUE_DEPTH] - earliest
            earliest = recent[issued - QUEUE_DEPTH]
        earliest += plan.latency[index]
        stream = plan.stream[index]
        free = stream_free.get(stream, 0.0)
        if free > earliest:
            earliest = free
        other = plan.after[index]
        if other >= 0 and ends[other] > earliest:
            earliest = ends[other]
        earliest += plan.held[index]
        begin[index] = earliest
        end = earliest + plan.duration[index]
        ends[index] = end
        stream_free[stream] = end + plan.gap[index]
        issued += 1
        recent.append(earliest)
    return np.array(begin), np.array(resumed)


@dataclass(frozen=True)
class _Plan:
    """Everything the loop needs, as plain lists: numpy scalars are slow one by one."""

    anchors: list[tuple[bool, int, float]]
    stream: list[int]
    duration: list[float]
    latency: list[float]
    held: list[float]
    gap: list[float]
    after: list[int]
    awaited: list[int]
    reaction: list[float]
    own: list[float]


def _plan(events: EventTable, links: Links, host: Host) -> _Plan:
    device = links.device
    start, end = events.start_ns[device], events.end_ns[device]
    known = links.launch >= 0
    row = np.maximum(links.launch, 0)
    call = np.where(known, events.start_ns[row], start)
    # work may begin while its call still runs (a long call loads code first), and at the latest some time behind it
    issued = np.where(known, np.clip(start, call, events.end_ns[row]), start)
    stream = _streams(events, device)
    free = _previous_end(stream, start, end)
    latency = _latency((start - issued)[known & (free <= issued)])
    kept = _kept_order(events, device, stream, start, end)
    possible = np.maximum(issued + latency, np.maximum(free, np.where(kept >= 0, end[np.maximum(kept, 0)], 0)))
    late = _inferred(start, end, possible)
    held = np.where((late < 0) & (start - possible >= UNRECORDED_NS), start - possible, 0)
    waits = host.waits
    wait_start, wait_end = events.start_ns[waits], events.end_ns[waits]
    awaited, reaction = _awaited(wait_start, wait_end, call, end)
    # a wait that no recorded work explains (another process, another device) keeps its length
    own = np.where(awaited < 0, wait_end - wait_start, 0)
    ready = _passed(host, issued)
    ahead = _backlog(start, known)
    if len(host.at):
        # work from before the recording runs on the device's own clock, and in front of all that is issued in it
        ready[ahead] = (start[ahead] - host.at[0]).astype(np.float64)
    anchors = [(False, index, at) for index, at in enumerate(ready.tolist())]
    anchors += [(True, index, at) for index, at in enumerate(_passed(host, wait_start).tolist())]
    when = np.concatenate([np.where(ahead, start.min(initial=0) - 1, call), wait_start])
    order = np.lexsort((np.arange(len(when)), when))
    return _Plan(
        anchors=[anchors[index] for index in order.tolist()],
        stream=stream.tolist(),
        duration=(end - start).astype(np.float64).tolist(),
        latency=np.minimum(start - issued, latency).astype(np.float64).tolist(),
        held=held.astype(np.float64).tolist(),
        gap=_gaps(start, end, stream, issued).tolist(),
        after=np.where(late >= 0, late, kept).tolist(),
        awaited=awaited.tolist(),
        reaction=reaction.tolist(),
        own=own.astype(np.float64).tolist(),
    )


def _streams(events: EventTable, rows: I8) -> NDArray[np.int64]:
    """A number for each (device, stream) pair."""
    _, device = np.unique(events.device[rows], return_inverse=True)
    numbers, stream = np.unique(events.stream[rows], return_inverse=True)
    return np.asarray(device).reshape(-1) * max(len(numbers), 1) + np.asarray(stream).reshape(-1)


def _backlog(start: I8, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Work without a launch in front of the first work with one: issued before the recording began."""
    if not known.any():
        return np.zeros(len(start), dtype=bool)
    result: NDArray[np.bool_] = ~known & (start < start[known].min())
    return result


def _latency(seen: I8) -> int:
    """From a launch on an idle stream to the begin of its work: the fastest of those that began behind their call."""
    behind = seen[seen > 0]
    return int(np.percentile(behind, 1, method="lower")) if len(behind) else 0


def _passed(host: Host, at: I8) -> NDArray[np.float64]:
    """Deflated host time at each instant; outside the host's record, clocks run on unchanged."""
    if not len(host.at):
        return at.astype(np.float64)
    inside = np.interp(at, host.at, host.passed)
    before = np.minimum(at - host.at[0], 0)
    beyond = np.maximum(at - host.at[-1], 0)
    result: NDArray[np.float64] = inside + before + beyond
    return result


def _previous_end(stream: NDArray[np.int64], start: I8, end: I8) -> I8:
    """The latest end on the same stream before each piece of work (0 for the first)."""
    result = np.zeros(len(start), dtype=np.int64)
    for one in np.unique(stream):
        rows = np.flatnonzero(stream == one)
        reach = np.maximum.accumulate(end[rows])
        result[rows[1:]] = reach[:-1]
    return result


def _gaps(start: I8, end: I8, stream: NDArray[np.int64], issued: I8) -> NDArray[np.float64]:
    """The device's own pause behind each piece of work, before the next on its stream.

    Where the next was already issued, the pause that was seen; elsewhere the median of those.
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


def _inferred(start: I8, end: I8, possible: I8) -> NDArray[np.int64]:
    """For work that started late for no recorded reason: the work that ended last before it; else -1."""
    late = start > possible + SLACK_NS
    result = np.full(len(start), -1, dtype=np.int64)
    if not late.any():
        return result
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], start[late] + 1) - 1
    found = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    close = (found >= 0) & (start[late] - end[np.maximum(found, 0)] <= SLACK_NS)
    mine = np.flatnonzero(late)
    result[late] = np.where(close & (found != mine) & (start[np.maximum(found, 0)] < start[mine]), found, -1)
    return result


def _kept_order(events: EventTable, rows: I8, stream: NDArray[np.int64], start: I8, end: I8) -> NDArray[np.int64]:
    """For each compute kernel the last one on another stream that had ended before it began; else -1.

    Which events a stream waited for is not recorded, and a slow host hides it: no overlap of compute streams that was
    not there is invented. Copies and communication are meant to overlap and stay free.
    """
    result = np.full(len(rows), -1, dtype=np.int64)
    talks = communicates(events.names)
    compute = np.flatnonzero((events.kind[rows] == Kind.KERNEL) & ~talks[events.name[rows]])
    if len(np.unique(stream[compute])) < 2:
        return result
    order = compute[np.argsort(end[compute], kind="stable")]
    at = np.searchsorted(end[order], start[compute], side="right") - 1
    found = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    other = (found >= 0) & (stream[np.maximum(found, 0)] != stream[compute])
    result[compute] = np.where(other, found, -1)
    return result


def _awaited(wait_start: I8, wait_end: I8, call: I8, end: I8) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each wait: the work whose end it waited for (-1: it did not block), and how long the host took to notice."""
    target = np.full(len(wait_start), -1, dtype=np.int64)
    reaction = np.zeros(len(wait_start))
    if not len(end):
        return target, reaction
    order = np.argsort(end, kind="stable")
    for index in range(len(wait_start)):
        at = int(np.searchsorted(end[order], wait_end[index], side="right")) - 1
        while at >= 0 and call[order[at]] >= wait_end[index]:
            at -= 1
        if at >= 0 and end[order[at]] > wait_start[index]:
            target[index] = order[at]
            reaction[index] = float(wait_end[index] - end[order[at]])
    return target, reaction


def _moved(
    events: EventTable, links: Links, host: Host, begin: NDArray[np.float64], resumed: NDArray[np.float64]
) -> EventTable:
    start, stop = events.start_ns.astype(np.float64), events.end_ns.astype(np.float64)
    clock = _clock(events, host, resumed)
    new_start, new_stop = clock(start), clock(stop)
    duration = np.rint(new_stop - new_start).astype(np.int64)
    moved = np.rint(new_start).astype(np.int64)
    moved[links.device] = np.rint(begin).astype(np.int64)
    duration[links.device] = events.duration_ns[links.device]
    return replaced(events, start_ns=moved, duration_ns=np.maximum(duration, 0))


def _clock(
    events: EventTable, host: Host, resumed: NDArray[np.float64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """The map from recorded host time to replayed host time: piecewise linear, flat stretches closed by the waits."""
    waits = host.waits
    order = np.argsort(events.end_ns[waits], kind="stable")
    ends = events.end_ns[waits][order]
    lag = (resumed - _passed(host, events.start_ns[waits]))[order]
    lag = np.maximum.accumulate(lag) if len(lag) else lag

    def new_time(at: NDArray[np.float64]) -> NDArray[np.float64]:
        base = _passed(host, at.astype(np.int64))
        if not len(ends):
            return base
        index = np.searchsorted(ends, at, side="right")
        return base + np.where(index > 0, lag[np.maximum(index - 1, 0)], 0.0)

    return new_time
