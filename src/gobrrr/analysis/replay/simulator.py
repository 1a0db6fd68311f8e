"""Run a step's graph (gobrrr.analysis.replay.graph): when each piece of work begins, and what the step takes.

The host issues in order, each stream runs in order, a launch queue takes `QUEUE_DEPTH` launches, and waits hold the
host until the device is done. Deterministic. Unchanged, and with the cost of recording taken out, the graph gives the
step as it would be without the profiler; changed (gobrrr.analysis.replay.what_if), what it would be then.
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
"""73 years: a time that is later, or earlier by as much, is none. int64 holds the sum of two."""

QUEUE_DEPTH = 1_024
"""Launches that a CUDA stream takes before a further launch blocks the host (docs/design.md, section 7)."""


@dataclass(frozen=True)
class Run:
    """A graph's run, in ns: `begin` and `end` of each piece of work, and when the host `resumed` after each wait.

    `full`: the work whose launch a full queue held up (indices into `links.device`, in the host's order), `late` how
    much later than its own time the host is from there on.
    """

    begin: F8
    end: F8
    resumed: F8
    full: I8
    late: F8


def replay(events: EventTable, links: Links, cost: ObserverCost, start: int, stop: int) -> EventTable:
    """The same events with the times that they would have had without the profiler, as far as [start, stop) goes.

    Rows outside the window keep their distance to its edge.
    """
    return replayed(graph_of(events, links, cost, start, stop))


def replayed(graph: StepGraph) -> EventTable:
    """The events at the times of the graph's run; work that is gone has no length."""
    return serially(graph) if graph.serial else moved(graph, run(graph))


def run(graph: StepGraph) -> Run:
    """Simulate the host's queue and the device's streams."""
    try:
        next(walk(graph))
    except StopIteration as done:
        result: Run = done.value
        return result
    raise AssertionError("nothing meets another rank")


def _order(graph: StepGraph) -> tuple[list[int], list[float]]:
    """(work, then waits, in the order in which the host comes to them; the host's own time at each)."""
    ready = graph.passed(graph.issued)
    begins = graph.events.start_ns[graph.links.device]
    if len(graph.at):
        # work from before the recording runs on the device's own clock, and in front of all that is issued in it
        ready[graph.ahead] = (begins[graph.ahead] - graph.at[0]).astype(np.float64)
    at_wait = graph.passed(graph.events.start_ns[graph.waits])
    when = np.concatenate(
        [np.where(graph.ahead, begins.min(initial=0) - 1, graph.called), graph.events.start_ns[graph.waits]]
    )
    order = np.argsort(when, kind="stable")
    if graph.until is not None:
        order = order[: int(np.searchsorted(when[order], graph.until))]
    return order.tolist(), np.concatenate([ready, at_wait]).tolist()


def walk(graph: StepGraph, meets: frozenset[int] = frozenset()) -> Generator[tuple[int, float], float, Run]:
    """Walk through issues and waits in the host's order; for each piece of work in `meets` (collectives) yield
    (index, begin) and be sent its end.
    """
    order, ready = _order(graph)
    # plain lists: numpy scalars are slow one by one
    count = len(graph.links.device)
    awaited, reaction, own, cut = (one.tolist() for one in (graph.awaited, graph.reaction, graph.own, graph.cut))
    latency, held, gap, duration = (one.tolist() for one in (graph.latency, graph.held, graph.gap, graph.duration))
    streams, after, gone = graph.stream.tolist(), graph.after.tolist(), graph.gone.tolist()
    begin, ends, resumed = [0.0] * count, [0.0] * count, [0.0] * len(graph.waits)
    free: dict[int, float] = {}
    recent: list[float] = []
    places = graph.place.tolist()
    held_up: list[tuple[int, float]] = []
    shift = 0.0  # how much later than its own time the host is, for all the waits so far
    for index in order:
        earliest = ready[index] + shift
        if index >= count:
            index -= count
            until = earliest
            if not cut[index]:
                target = awaited[index]
                if target >= 0:
                    until = max(until, ends[target] + reaction[index])
                until += own[index]
                shift += until - earliest
            resumed[index] = until
            continue
        stream, other = streams[index], after[index]
        if gone[index]:  # whoever waits for it waits for what ran before it
            begin[index] = ends[index] = max(free.get(stream, 0.0), ends[other] if other >= 0 else 0.0)
            continue
        issued = len(recent)
        if places[index] and issued >= QUEUE_DEPTH and earliest < recent[issued - QUEUE_DEPTH]:
            shift += recent[issued - QUEUE_DEPTH] - earliest
            earliest = recent[issued - QUEUE_DEPTH]
            held_up.append((index, shift))
        earliest = max(earliest + latency[index], free.get(stream, -math.inf))
        if other >= 0 and ends[other] > earliest:
            earliest = ends[other]
        earliest += held[index]
        begin[index] = earliest
        ends[index] = (yield index, earliest) if index in meets else earliest + duration[index]
        free[stream] = ends[index] + gap[index]
        if places[index]:
            recent.append(earliest)
    full, late = np.array([one for one, _ in held_up], dtype=np.int64), np.array([one for _, one in held_up])
    return Run(np.array(begin), np.array(ends), np.array(resumed), full, late)


def moved(graph: StepGraph, ran: Run) -> EventTable:
    """The events at the times of a run."""
    events = graph.events
    clock = host_clock(graph, ran)
    new_start, new_stop = clock(events.start_ns), clock(events.end_ns)
    start, duration = whole(new_start), whole(new_stop - new_start)
    start[graph.links.device] = whole(ran.begin)
    duration[graph.links.device] = whole(ran.end - ran.begin)
    return replace(events, start_ns=start, duration_ns=np.maximum(duration, 0))


def whole(ns: F8) -> I8:
    """Times in whole ns; those that no trace has, but a replay of a damaged one may come to, are cut."""
    return np.rint(np.clip(ns, -LATEST_NS, LATEST_NS)).astype(np.int64)


def host_clock(graph: StepGraph, ran: Run) -> Callable[[I8], F8]:
    """The map from recorded host time to replayed host time: piecewise linear, later by each wait and full queue."""
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
    """The events of a CPU's graph: what lies between its work, and the work, one behind the other."""
    clock = serial_clock(graph)
    start, stop = whole(clock(graph.events.start_ns)), whole(clock(graph.events.end_ns))
    return replace(graph.events, start_ns=start, duration_ns=np.maximum(stop - start, 0))


def serial_clock(graph: StepGraph) -> Callable[[I8], F8]:
    """The map from the recorded to the replayed time of a CPU: each nanosecond of work keeps its work's new share."""
    device = graph.links.device
    begin, end = graph.events.start_ns[device], graph.events.end_ns[device]
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order]) if len(order) else end
    opens = np.maximum(begin, np.concatenate([begin[:1], end[:-1]]))  # what overlaps is counted once
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
