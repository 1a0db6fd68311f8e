"""The host's record of a window: what the host did between the begins and ends of its events, and where it waited.

It gives the host's time without the profiler, for any cost of recording.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import HostCall, classify, frees
from gobrrr.analysis.events.intervals import NO_SPANS, Spans, covered, union
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.events.observer import ObserverCost
from gobrrr.model.events import F8, I8, EventKind, EventTable, Mask
from gobrrr.model.tree import HOST_KINDS

INPUT_SHARE = 0.9
"""The least share that stays of host time in which data is loaded: the host computes then (decoding, collating) and
dispatches little, so little of the time is the profiler's. Chosen, not measured."""


@dataclass(frozen=True)
class HostRecord:
    """`at`: all begins and ends of the host's events, sorted, unique. Stretches lie between them.

    Of each stretch: `elapsed` ns, of which `apart` is what the profiler recorded as its own work; `boundaries`: for
    each of `HOST_KINDS`, the begins and ends of such events that are charged to the stretch (half of each to either
    side); `loading`: data is loaded; `blocked`: the host waits; `once`: the share of first uses, which no later step
    has. Of each wait: `waits`, the row of the call, by start, and `until`, when the waiting ended.
    """

    at: I8
    elapsed: F8
    apart: F8
    boundaries: F8
    loading: Mask
    blocked: Mask
    waits: I8
    until: I8
    once: F8

    def left(self, cost: ObserverCost) -> F8:
        """The host's time in each stretch, less recording at `cost` and less waits."""
        elapsed = np.maximum(self.elapsed - self.apart, 0) if cost.own_work else self.elapsed
        share = np.where(self.loading, max(cost.least_share, INPUT_SHARE), cost.least_share)
        left: F8 = np.maximum(elapsed - self.charges(cost), share * elapsed) * cost.pace
        left[self.blocked] = 0.0
        return left * (1.0 - self.once)

    def charges(self, cost: ObserverCost) -> F8:
        """The cost of recording in each stretch: half of an event's cost at its begin, half at its end."""
        prices = np.array([cost.op_ns, cost.annotation_ns, cost.python_ns, cost.runtime_ns]) / 2
        result: F8 = prices @ self.boundaries
        return result


def host_record(events: EventTable, links: Links, start: int, stop: int, once: Spans = NO_SPANS) -> HostRecord:
    """The host's record in the window [start, stop). `once`: when the host was in first uses
    (analysis/budget/first_uses.py)."""
    rows = _host_rows(events, start, stop)
    ends = np.concatenate([events.start_ns[rows], events.end_ns[rows]])
    waits, until = _waits(events, links, rows)
    at, where = np.unique(np.concatenate([ends, until]), return_inverse=True)
    where = np.asarray(where).reshape(-1)[: len(ends)]
    blocked = union(events.start_ns[waits], until)
    return HostRecord(
        at=at,
        elapsed=np.diff(at).astype(np.float64),
        apart=_covered(_overhead(events), at),
        boundaries=_boundaries(events.kind[rows], where, len(at)),
        loading=_covered(_input(events, rows), at) > 0,
        blocked=_covered(blocked, at) > 0,
        waits=waits,
        until=until,
        once=_covered(once, at) / np.maximum(np.diff(at), 1),
    )


def _covered(spans: Spans, at: I8) -> F8:
    """How many ns of each stretch `spans` covers."""
    if not len(spans.start) or len(at) < 2:
        return np.zeros(max(len(at) - 1, 0))
    return covered(spans, at[:-1], at[1:]).astype(np.float64)


def _boundaries(kind: NDArray[np.uint8], where: I8, size: int) -> F8:
    """Begins and ends charged to each stretch, a row per kind."""
    result = np.zeros((len(HOST_KINDS), max(size - 1, 0)))
    for row, kind_ in enumerate(HOST_KINDS):
        of_kind = np.tile(kind == int(kind_), 2)
        if of_kind.any():
            result[row] = _charged(np.bincount(where[of_kind], minlength=size).astype(np.float64))
    return result


def _host_rows(events: EventTable, start: int, stop: int) -> I8:
    rows = events.of(*HOST_KINDS)
    return rows[(events.end_ns[rows] >= start) & (events.start_ns[rows] <= stop)]


def _input(events: EventTable, rows: I8) -> Spans:
    """Where the host loads data."""
    loads = rows[classify(events.names)[events.name[rows]] == HostCall.INPUT]
    return union(events.start_ns[loads], events.end_ns[loads])


def _charged(charge: F8) -> F8:
    """Half of a boundary's cost to the stretch before it, half to the stretch after."""
    return (charge[:-1] + charge[1:]) / 2


def _overhead(events: EventTable) -> Spans:
    """Time that the profiler recorded as its own."""
    rows = events.of(EventKind.OVERHEAD)
    return union(events.start_ns[rows], events.end_ns[rows]) if len(rows) else NO_SPANS


def _waits(events: EventTable, links: Links, rows: I8) -> tuple[I8, I8]:
    """(calls that block the host until the device is done, when each stops waiting): synchronizations, copies to
    pageable memory, and calls that free memory, which continue with work of their own after the wait.
    """
    call = classify(events.names)
    runtime = rows[events.kind[rows] == EventKind.RUNTIME]
    synchronizes = runtime[call[events.name[runtime]] == HostCall.WAIT]
    copies = links.launch[
        (events.kind[links.device] == EventKind.MEMCPY) & (links.launch >= 0) & _blocks(events, links)
    ]
    copies = copies[np.isin(copies, runtime)]
    freeing, done = _freeing(events, links, runtime)
    waits = np.concatenate([np.union1d(synchronizes, copies), freeing])
    until = events.end_ns[waits]
    until[len(waits) - len(freeing) :] = done
    order = np.argsort(events.start_ns[waits], kind="stable")
    waits, until = waits[order], until[order]
    alone = ~_others_busy(events, waits, runtime)
    return waits[alone], until[alone]


def _freeing(events: EventTable, links: Links, runtime: I8) -> tuple[I8, I8]:
    """(calls that free memory while the device works, when the device is done)."""
    rows = runtime[frees(events.names)[events.name[runtime]]]
    ends = np.sort(events.end_ns[links.device])
    if not len(rows) or not len(ends):
        return rows[:0], rows[:0]
    done = ends[np.maximum(np.searchsorted(ends, events.end_ns[rows], side="right") - 1, 0)]
    waited = (done > events.start_ns[rows]) & (done <= events.end_ns[rows])
    return rows[waited], done[waited]


def _others_busy(events: EventTable, waits: I8, runtime: I8) -> Mask:
    """Whether another thread issues work during the wait: then the wait is not on the path."""
    if not len(waits):
        return np.empty(0, dtype=bool)
    busy = np.zeros(len(waits), dtype=bool)
    order = np.argsort(events.start_ns[runtime], kind="stable")
    starts, threads = events.start_ns[runtime][order], events.thread[runtime][order]
    for thread in np.unique(events.thread[waits]):
        on_thread = np.flatnonzero(events.thread[waits] == thread)
        elsewhere = starts[threads != thread]
        first = np.searchsorted(elsewhere, events.start_ns[waits[on_thread]], side="right")
        last = np.searchsorted(elsewhere, events.end_ns[waits[on_thread]], side="left")
        busy[on_thread] = last > first
    return busy


def _blocks(events: EventTable, links: Links) -> Mask:
    """Device-to-host copies into pageable memory, and copies by a call without "Async" in its name."""
    pageable = np.array(["Device -> Pageable" in name for name in events.names], dtype=bool)
    plain = np.array([name in ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream") for name in events.names], dtype=bool)
    return pageable[events.name[links.device]] | (plain[events.name[np.maximum(links.launch, 0)]] & (links.launch >= 0))
