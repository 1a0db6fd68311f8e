"""Why the device idles: for each gap, what the host was doing on the path to the next piece of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.calls import Call, classify
from gobrrr.analysis.intervals import EMPTY, Spans, union, until
from gobrrr.analysis.links import Links
from gobrrr.model.events import ABSENT, I8, EventTable, Kind

LAUNCHING, PYTHON, DRAINING, INPUT = "launching", "python", "sync_drain", "input"
ALLOCATOR, COLLECTING, COMPILING, HOST_WORK, UNEXPLAINED = "allocator", "gc", "compile", "host_compute", "unexplained"
CAUSES = (LAUNCHING, PYTHON, DRAINING, INPUT, ALLOCATOR, COLLECTING, COMPILING, HOST_WORK, UNEXPLAINED)

HOST_OP_NS = 100_000
"""An operation without device work that takes this long is computing on the host, not dispatching."""

STUCK_NS = 200_000
LOADING_NS = 1_000_000

DRAIN_NS = 200_000
"""A wait returns some microseconds after the device is done; what it holds the host beyond this is not the drain."""

UNSEEN_NS = 1_000_000
"""A stretch this long without any recorded host event is not observed, rather than spent in Python."""


@dataclass(frozen=True)
class Gap:
    """An idle stretch of a device. `next_work`: row of the device work that ends it, -1 at the end of the window.

    `causes`: (cause, ns), summing to the gap's length.
    """

    start: int
    stop: int
    next_work: int
    causes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Gaps:
    """All idle stretches of a device as columns; `ns` has a row a gap and a column a cause (`CAUSES`)."""

    start: I8
    stop: I8
    next_work: I8
    ns: I8

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Gap]:
        columns = (self.start.tolist(), self.stop.tolist(), self.next_work.tolist(), self.ns.tolist())
        for start, stop, work, amounts in zip(*columns, strict=True):
            causes = tuple((cause, ns) for cause, ns in zip(CAUSES, amounts, strict=True) if ns > 0)
            yield Gap(start, stop, work, causes)

    def of(self, *causes: str) -> I8:
        """Nanoseconds of the given causes together, for each gap."""
        chosen: I8 = self.ns[:, [CAUSES.index(cause) for cause in causes]].sum(axis=1)
        return chosen

    def take(self, mask: NDArray[np.bool_]) -> Gaps:
        """The gaps that are marked."""
        return Gaps(self.start[mask], self.stop[mask], self.next_work[mask], self.ns[mask])


@dataclass(frozen=True)
class HostView:
    """Host time of one thread as disjoint spans by what it was spent on; `anything` is all that was recorded there."""

    spans: dict[str, Spans]
    anything: Spans


def gaps_of(events: EventTable, links: Links, idle: Spans, device: int) -> Gaps:
    """Explain each span of `idle` on `device`."""
    amounts = np.zeros((len(idle.start), len(CAUSES)), dtype=np.int64)
    rows = links.device
    here = np.flatnonzero(events.device[rows] == device)
    if not len(idle.start) or not len(here):
        amounts[:, CAUSES.index(UNEXPLAINED)] = idle.stop - idle.start
        return Gaps(idle.start, idle.stop, np.full_like(idle.start, ABSENT), amounts)
    order = here[np.argsort(events.start_ns[rows[here]], kind="stable")]
    starts = events.start_ns[rows[order]]
    at = np.searchsorted(starts, idle.stop)
    following = np.where(at < len(order), order[np.minimum(at, len(order) - 1)], ABSENT)
    launch = np.where(following >= 0, links.launch[np.maximum(following, 0)], ABSENT)
    threads = _threads(events, links, launch)
    copies = _before_copy(events, links, following)
    views = _views(events, links, np.unique(threads))
    for thread, view in views.items():
        mine = np.flatnonzero(threads == thread)
        called = np.where(launch[mine] >= 0, events.start_ns[np.maximum(launch[mine], 0)], idle.stop[mine])
        returned = np.where(launch[mine] >= 0, events.end_ns[np.maximum(launch[mine], 0)], idle.stop[mine])
        amounts[mine] = _causes(view, idle.start[mine], idle.stop[mine], called, returned, copies[mine])
    next_work = np.where(following >= 0, rows[np.maximum(following, 0)], ABSENT)
    return Gaps(idle.start, idle.stop, next_work, amounts)


def _threads(events: EventTable, links: Links, launch: I8) -> I8:
    """The thread that launches the work behind each gap; where none does, the thread that launches most."""
    known = links.launch[links.launch >= 0]
    if len(known):
        values, counts = np.unique(events.thread[known], return_counts=True)
        usual = int(values[np.argmax(counts)])
    else:
        host = events.of(Kind.OP, Kind.RUNTIME, Kind.ANNOTATION)
        usual = int(np.bincount(events.thread[host]).argmax()) if len(host) else ABSENT
    return np.where(launch >= 0, events.thread[np.maximum(launch, 0)], usual).astype(np.int64)


def _before_copy(events: EventTable, links: Links, following: I8) -> NDArray[np.bool_]:
    """Whether the work behind each gap brings data from the host: host computing before it prepares input."""
    inward = np.array(["HtoD" in name or "Host -> Device" in name for name in events.names], dtype=bool)
    row = links.device[np.maximum(following, 0)] if len(links.device) else following
    is_copy = (following >= 0) & (events.kind[np.maximum(row, 0)] == Kind.MEMCPY)
    result: NDArray[np.bool_] = is_copy & inward[events.name[np.maximum(row, 0)]]
    return result


def _views(events: EventTable, links: Links, threads: I8) -> dict[int, HostView]:
    """What each thread did, by cause. Built once for all gaps of a device."""
    call = classify(events.names)
    working = _computes_on_host(events, call, links.op_parent)
    elsewhere = _recorded(events)
    views = {}
    for thread in threads.tolist():
        here = events.thread == thread
        spans = {
            DRAINING: _spans(events, here & (events.kind == Kind.RUNTIME) & (call[events.name] == Call.WAIT)),
            ALLOCATOR: _spans(events, here & (events.kind == Kind.RUNTIME) & (call[events.name] == Call.ALLOCATE)),
            COMPILING: _spans(events, here & (call[events.name] == Call.COMPILE)),
            COLLECTING: _spans(events, here & (call[events.name] == Call.COLLECT)),
            INPUT: _spans(events, here & (call[events.name] == Call.INPUT)),
            HOST_WORK: _spans(events, here & working),
            LAUNCHING: _spans(events, here & np.isin(events.kind, (Kind.OP, Kind.RUNTIME))),
        }
        views[int(thread)] = HostView(spans, elsewhere)
    return views


def _computes_on_host(events: EventTable, call: NDArray[np.uint8], around: I8) -> NDArray[np.bool_]:
    """Operations that take long and issue nothing to the device, nor does anything within them."""
    calls = events.of(Kind.RUNTIME)
    issues = np.zeros(len(events), dtype=bool)
    inside = np.zeros(len(events), dtype=np.int64)  # time in the driver's calls within each event
    active = np.isin(call[events.name[calls]], (Call.LAUNCH, Call.COPY, Call.WAIT))
    rows, spent = around[calls], events.duration_ns[calls]
    while (known := rows >= 0).any():
        rows, spent, active = rows[known], spent[known], active[known]
        issues[rows[active]] = True
        np.add.at(inside, rows, spent)
        rows = around[rows]
    own = events.duration_ns - inside
    result: NDArray[np.bool_] = (events.kind == Kind.OP) & ~issues & (own >= HOST_OP_NS)
    return result


def _recorded(events: EventTable) -> Spans:
    """Where any host thread recorded anything at all, step annotations aside."""
    rows = events.of(Kind.OP, Kind.RUNTIME, Kind.PYTHON, Kind.ANNOTATION)
    step = np.array([name.startswith("ProfilerStep") for name in events.names], dtype=bool)
    rows = rows[~step[events.name[rows]]]
    return union(events.start_ns[rows], events.end_ns[rows])


def _spans(events: EventTable, mask: NDArray[np.bool_]) -> Spans:
    return union(events.start_ns[mask], events.end_ns[mask])


def _causes(view: HostView, start: I8, stop: I8, called: I8, returned: I8, before_copy: NDArray[np.bool_]) -> I8:
    """For each gap [start, stop) whose next work a call from `called` to `returned` launches: nanoseconds by cause.

    After the launch call the driver has the work: launching. Before it, host time by what it was spent on; time in no
    recorded event is Python, or not observed where it is long and no thread recorded anything. A gap that begins
    inside a wait is the bubble that the wait left: its dispatching and Python are the wait's as well, unless the host
    then did something else for long.
    """
    reach = np.clip(called, start, stop)
    late = stop - reach  # in the driver's hands
    within = np.clip(np.minimum(returned, stop) - reach, 0, None)
    # issued, the call back, and yet not begun for long: what it waited for is not in the trace
    stuck = np.where(late - within >= STUCK_NS, late - within, 0)
    # a launch call that takes this long on an idle device loads the kernel's code first
    loading = np.where((within >= LOADING_NS) & ~before_copy, within, 0)
    late = late - stuck - loading
    amounts: dict[str, I8] = {}
    taken: list[Spans] = []
    for cause in (DRAINING, COLLECTING, COMPILING, ALLOCATOR, INPUT, HOST_WORK, LAUNCHING):
        spans = view.spans[cause]
        before = _joined(taken)
        both = _joined([*taken, spans])
        amounts[cause] = (until(both, reach) - until(both, start)) - (until(before, reach) - until(before, start))
        taken = [both]
    beyond = np.maximum(amounts[DRAINING] - DRAIN_NS, 0)
    amounts[DRAINING] = amounts[DRAINING] - beyond
    known = beyond + sum(amounts.values(), np.zeros_like(start))
    rest = (reach - start) - known
    seen = until(view.anything, reach) - until(view.anything, start)
    silent = np.maximum((reach - start) - seen, 0)
    unseen = np.where(silent >= UNSEEN_NS, np.minimum(silent, rest), 0)
    amounts[PYTHON] = rest - unseen
    amounts[UNEXPLAINED] = unseen + beyond + stuck
    amounts[COMPILING] = amounts[COMPILING] + loading
    amounts[LAUNCHING] = amounts[LAUNCHING] + late
    # what is computed on the host just before a copy to the device is that copy's data, with all that lies between the
    # operations that compute it, and so is staging it
    prepares = before_copy & (amounts[HOST_WORK] > 0)
    for cause in (HOST_WORK, PYTHON, UNEXPLAINED):
        amounts[INPUT] = amounts[INPUT] + np.where(prepares, amounts[cause], 0)
        amounts[cause] = np.where(prepares, 0, amounts[cause])
    staged = np.where(before_copy & (late >= HOST_OP_NS), late, 0)
    amounts[INPUT] = amounts[INPUT] + staged
    amounts[LAUNCHING] = amounts[LAUNCHING] - staged
    drains = (amounts[DRAINING] > 0) & (amounts[PYTHON] < UNSEEN_NS)
    for cause in (LAUNCHING, PYTHON):
        amounts[DRAINING] = amounts[DRAINING] + np.where(drains, amounts[cause], 0)
        amounts[cause] = np.where(drains, 0, amounts[cause])
    return np.stack([amounts[cause] for cause in CAUSES], axis=1)


def _joined(parts: list[Spans]) -> Spans:
    if not parts:
        return EMPTY
    return union(np.concatenate([part.start for part in parts]), np.concatenate([part.stop for part in parts]))
