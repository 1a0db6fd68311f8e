"""Run a step's graph (gobrrr.analysis.replay.graph): when each piece of work begins, and how long the step takes.

The host issues in order, each stream runs in order, a launch queue holds `QUEUE_DEPTH` launches, and the host waits
until the device is done. Deterministic. The unchanged graph, without the cost of recording, gives the step without the
profiler; a changed graph (gobrrr.analysis.replay.what_if) gives the step after the change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np

from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.observer import ObserverCost
from gobrrr.analysis.replay.graph import F8, StepGraph, graph_of
from gobrrr.model.events import I8, EventTable

LATEST_NS = 2.0**61
"""Times are cut at this and at its negative, 73 years; int64 holds the sum of two."""

QUEUE_DEPTH = 1_024
"""Launches that a CUDA stream holds before a further launch blocks the host (docs/design.md, section 7)."""


@dataclass(frozen=True)
class GraphRun:
    """A graph's run, in ns: `begin` and `end` of each piece of work, and when the host `resumed` after each wait.

    `full`: the work whose launch a full queue delayed (indices into `links.device`, in the host's order); `late`: how
    much later than undelayed the host is from there on.
    """

    begin: F8
    end: F8
    resumed: F8
    full: I8
    late: F8


def replay(events: EventTable, links: Links, cost: ObserverCost, start: int, stop: int) -> EventTable:
    """The events at the times without the profiler, within [start, stop).

    Rows outside of the window keep their distance to its edge.
    """
    return replayed(graph_of(events, links, cost, start, stop))


def replayed(graph: StepGraph) -> EventTable:
    """The events at the times of the graph's run; removed work has no length."""
    return serially(graph) if graph.serial else moved(graph, run(graph))


def run(graph: StepGraph) -> GraphRun:
    """Simulate the host's queue and the device's streams."""
    try:
        next(walk(graph))
    except StopIteration as finished:
        result: GraphRun = finished.value
        return result
    raise AssertionError("a run of one rank waits for no other rank")


def _order(graph: StepGraph) -> tuple[list[int], list[float]]:
    """(work and waits in the host's order, a wait's index offset by the number of pieces of work; the host's undelayed
    time at each)."""
    ready = graph.passed(graph.issued)
    begins = graph.events.start_ns[graph.links.device]
    if len(graph.at):
        # work from before the recording has the device's own times, and precedes all that is issued in the recording
        ready[graph.ahead] = (begins[graph.ahead] - graph.at[0]).astype(np.float64)
    at_wait = graph.passed(graph.events.start_ns[graph.waits])
    when = np.concatenate(
        [np.where(graph.ahead, begins.min(initial=0) - 1, graph.called), graph.events.start_ns[graph.waits]]
    )
    order = np.argsort(when, kind="stable")
    if graph.until is not None:
        order = order[: int(np.searchsorted(when[order], graph.until))]
    return order.tolist(), np.concatenate([ready, at_wait]).tolist()


def walk(graph: StepGraph, meets: frozenset[int] = frozenset()) -> Generator[tuple[int, float], float, GraphRun]:
    """Simulate issues and waits in the host's order. For each piece of work in `meets` (collectives) yield
    (index, begin), and receive its end.
    """
    order, ready = _order(graph)
    # plain lists: access to single numpy elements is slow
    count = len(graph.links.device)
    awaited, reaction, own, cut = (column.tolist() for column in (graph.awaited, graph.reaction, graph.own, graph.cut))
    latency, held, gap, duration = (
        column.tolist() for column in (graph.latency, graph.held, graph.gap, graph.duration)
    )
    streams, after, gone = graph.stream.tolist(), graph.after.tolist(), graph.gone.tolist()
    begin, ends, resumed = [0.0] * count, [0.0] * count, [0.0] * len(graph.waits)
    free: dict[int, float] = {}
    recent: list[float] = []
    places = graph.place.tolist()
    delayed: list[tuple[int, float]] = []
    delay = 0.0  # how much later than undelayed the host is, by all the waits so far
    for position in order:
        earliest = ready[position] + delay
        if position >= count:
            position -= count
            resumes = earliest
            if not cut[position]:
                work = awaited[position]
                if work >= 0:
                    resumes = max(resumes, ends[work] + reaction[position])
                resumes += own[position]
                delay += resumes - earliest
            resumed[position] = resumes
            continue
        stream, predecessor = streams[position], after[position]
        if gone[position]:  # what waits for it waits for what ran before it
            awaited_end = ends[predecessor] if predecessor >= 0 else 0.0
            begin[position] = ends[position] = max(free.get(stream, 0.0), awaited_end)
            continue
        issued = len(recent)
        if places[position] and issued >= QUEUE_DEPTH and earliest < recent[issued - QUEUE_DEPTH]:
            delay += recent[issued - QUEUE_DEPTH] - earliest
            earliest = recent[issued - QUEUE_DEPTH]
            delayed.append((position, delay))
        earliest = max(earliest + latency[position], free.get(stream, -math.inf))
        if predecessor >= 0 and ends[predecessor] > earliest:
            earliest = ends[predecessor]
        earliest += held[position]
        begin[position] = earliest
        ends[position] = (yield position, earliest) if position in meets else earliest + duration[position]
        free[stream] = ends[position] + gap[position]
        if places[position]:
            recent.append(earliest)
    full, late = np.array([work for work, _ in delayed], dtype=np.int64), np.array([ns for _, ns in delayed])
    return GraphRun(np.array(begin), np.array(ends), np.array(resumed), full, late)


def moved(graph: StepGraph, ran: GraphRun) -> EventTable:
    """The events at the times of a run."""
    events = graph.events
    clock = host_clock(graph, ran)
    new_start, new_stop = clock(events.start_ns), clock(events.end_ns)
    start, duration = whole(new_start), whole(new_stop - new_start)
    start[graph.links.device] = whole(ran.begin)
    duration[graph.links.device] = whole(ran.end - ran.begin)
    return replace(events, start_ns=start, duration_ns=np.maximum(duration, 0))


def whole(ns: F8) -> I8:
    """Times in whole ns; extreme times, which only the replay of a damaged trace can have, are cut."""
    return np.rint(np.clip(ns, -LATEST_NS, LATEST_NS)).astype(np.int64)


def host_clock(graph: StepGraph, ran: GraphRun) -> Callable[[I8], F8]:
    """The map from recorded to replayed host time: piecewise linear, delayed by each wait and each full queue."""
    events, waits = graph.events, graph.waits
    ends = np.concatenate([events.end_ns[waits], graph.called[ran.full]])
    lag = np.concatenate([ran.resumed - graph.passed(events.start_ns[waits]), ran.late])
    order = np.argsort(ends, kind="stable")
    ends, lag = ends[order], lag[order]
    lag = np.maximum.accumulate(lag) if len(lag) else lag

    def new_time(when: I8) -> F8:
        base = graph.passed(when)
        if not len(ends):
            return base
        index = np.searchsorted(ends, when, side="right")
        later: F8 = base + np.where(index > 0, lag[np.maximum(index - 1, 0)], 0.0)
        return later

    return new_time


def serially(graph: StepGraph) -> EventTable:
    """The events of a CPU's graph, where work and the host's other time follow one another."""
    clock = serial_clock(graph)
    start, stop = whole(clock(graph.events.start_ns)), whole(clock(graph.events.end_ns))
    return replace(graph.events, start_ns=start, duration_ns=np.maximum(stop - start, 0))


def serial_clock(graph: StepGraph) -> Callable[[I8], F8]:
    """The map from recorded to replayed time of a CPU: a piece of work is stretched evenly to its new duration."""
    device = graph.links.device
    begin, end = graph.events.start_ns[device], graph.events.end_ns[device]
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order]) if len(order) else end
    opens = np.maximum(begin, np.concatenate([begin[:1], end[:-1]]))  # overlapping work counts once
    length = np.maximum(graph.events.duration_ns[device][order], 1)
    lasts = np.where(graph.gone, 0.0, graph.duration)[order] * np.maximum(end - opens, 0) / length
    points = np.column_stack([np.minimum(opens, end), end]).reshape(-1)
    reached = np.cumsum(lasts)
    done = np.column_stack([np.concatenate([[0.0], reached[:-1]]), reached]).reshape(-1)

    def new_time(when: I8) -> F8:
        base = graph.passed(when)
        worked: F8 = base + np.interp(when, points, done) if len(points) else base
        return worked

    return new_time
