"""Why the device idles: for each gap, what the host was doing on the path to the next piece of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.events.intervals import NO_SPANS, Ruler, Spans, ruler, union
from gobrrr.analysis.events.links import Links
from gobrrr.model.events import ABSENT, I8, EventKind, EventTable
from gobrrr.model.tree import STEP_MARK, sums_below

LAUNCHING, PYTHON_CAUSE, DRAINING, INPUT_CAUSE = "launching", "python", "sync_drain", "input"
ALLOCATOR, COLLECTING, COMPILE_CAUSE, HOST_WORK, UNEXPLAINED = (
    "allocator",
    "gc",
    "compile",
    "host_compute",
    "unexplained",
)
IDLE_CAUSES = (
    LAUNCHING,
    PYTHON_CAUSE,
    DRAINING,
    INPUT_CAUSE,
    ALLOCATOR,
    COLLECTING,
    COMPILE_CAUSE,
    HOST_WORK,
    UNEXPLAINED,
)
"""The causes of idle time, as the budget names them."""

HOST_OP_NS = 100_000
"""An operation without device work that takes at least this long computes on the host; a shorter one dispatches."""

UNRECORDED_WAIT_NS = 200_000
"""Work that begins at least this long after its launch call returned, on an idle device, waited for something that is
not in the trace. Chosen, not measured: a usual launch takes some microseconds."""

LOADING_NS = 1_000_000
"""A launch call that takes at least this long on an idle device first loads the kernel's code. Chosen, not measured."""

DRAIN_NS = 200_000
"""A wait returns some microseconds after the device is done. Time in the wait beyond this limit is not draining."""

UNSEEN_NS = 1_000_000
"""A stretch of at least this length without any recorded host event counts as not observed, not as Python."""


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
    """All idle stretches of a device as columns; `ns` has a row per gap and a column per cause (`IDLE_CAUSES`)."""

    start: I8
    stop: I8
    next_work: I8
    ns: I8

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Gap]:
        columns = (self.start.tolist(), self.stop.tolist(), self.next_work.tolist(), self.ns.tolist())
        for start, stop, work, amounts in zip(*columns, strict=True):
            causes = tuple((cause, ns) for cause, ns in zip(IDLE_CAUSES, amounts, strict=True) if ns > 0)
            yield Gap(start, stop, work, causes)

    def of(self, *causes: str) -> I8:
        """Nanoseconds of the given causes together, for each gap."""
        chosen: I8 = self.ns[:, [IDLE_CAUSES.index(cause) for cause in causes]].sum(axis=1)
        return chosen

    def take(self, mask: NDArray[np.bool_]) -> Gaps:
        """The gaps in `mask`."""
        return Gaps(self.start[mask], self.stop[mask], self.next_work[mask], self.ns[mask])


CAUSE_PRIORITY = (DRAINING, COLLECTING, COMPILE_CAUSE, ALLOCATOR, INPUT_CAUSE, HOST_WORK, LAUNCHING)
"""Where a thread's events overlap, an instant belongs to the first cause in this order."""

AXIS_LENGTH_NS = 1 << 62
"""The greatest length of an `Axis`, so that instants on it fit int64."""


@dataclass(frozen=True)
class Axis:
    """Host time of several threads, laid one after the other on one axis; each thread spans `low` to `high`.

    `taken`: what the first 0, 1, 2, ... causes of `CAUSE_PRIORITY` cover together.
    """

    threads: I8  # sorted
    low: int
    high: int
    taken: tuple[Ruler, ...]

    def at(self, thread: I8, when: I8) -> I8:
        """The position of a thread's instant."""
        place = np.searchsorted(self.threads, thread)
        moved: I8 = np.clip(when, self.low, self.high) + place * (self.high - self.low)
        return moved


@dataclass(frozen=True)
class HostTime:
    """What the launching threads did: the same for all devices of a trace.

    `usual`: the thread that launches most; `inward`: for each name, whether it is a copy to the device; `anything`: all
    that was recorded on any thread; `dispatch`: operations, annotations or Python were recorded.
    """

    usual: int
    inward: NDArray[np.bool_]
    axes: tuple[Axis, ...]
    anything: Ruler
    dispatch: bool


def host_time(events: EventTable, links: Links) -> HostTime:
    """Host time by cause. Linear in the number of events, whatever the number of threads."""
    usual = _usual(events, links)
    threads = np.unique(np.append(events.thread[links.launch[links.launch >= 0]], usual)).astype(np.int64)
    inward = np.array(["HtoD" in name or "Host -> Device" in name for name in events.names], dtype=bool)
    dispatch = bool(len(events.of(EventKind.OP, EventKind.ANNOTATION, EventKind.PYTHON)))
    return HostTime(usual, inward, _axes(events, links, threads), ruler(_recorded(events)), dispatch)


def gaps_of(events: EventTable, links: Links, idle: Spans, device: int, host: HostTime | None = None) -> Gaps:
    """Explain each span of `idle` on `device`. `host`: the result of `host_time`, where several devices share it."""
    amounts = np.zeros((len(idle.start), len(IDLE_CAUSES)), dtype=np.int64)
    rows = links.device
    on_device = np.flatnonzero(events.device[rows] == device)
    if not len(idle.start) or not len(on_device):
        amounts[:, IDLE_CAUSES.index(UNEXPLAINED)] = idle.stop - idle.start
        return Gaps(idle.start, idle.stop, np.full_like(idle.start, ABSENT), amounts)
    host = host or host_time(events, links)
    order = on_device[np.argsort(events.start_ns[rows[on_device]], kind="stable")]
    starts = events.start_ns[rows[order]]
    at = np.searchsorted(starts, idle.stop)
    following = np.where(at < len(order), order[np.minimum(at, len(order) - 1)], ABSENT)
    launch = np.where(following >= 0, links.launch[np.maximum(following, 0)], ABSENT)
    call = np.maximum(launch, 0)
    threads = np.where(launch >= 0, events.thread[call], host.usual).astype(np.int64)
    called = np.where(launch >= 0, events.start_ns[call], idle.stop)
    returned = np.where(launch >= 0, events.start_ns[call] + events.duration_ns[call], idle.stop)
    copies = _before_copy(events, links, following, host.inward)
    for axis in host.axes:
        selected = np.flatnonzero(np.isin(threads, axis.threads))
        times = (idle.start[selected], idle.stop[selected], called[selected], returned[selected])
        amounts[selected] = _causes(host, axis, threads[selected], *times, copies[selected])
    next_work = np.where(following >= 0, rows[np.maximum(following, 0)], ABSENT)
    return Gaps(idle.start, idle.stop, next_work, amounts)


def _usual(events: EventTable, links: Links) -> int:
    """The thread that launches most; where no launch is recorded, the thread with most host events."""
    known = links.launch[links.launch >= 0]
    known = known if len(known) else events.of(EventKind.OP, EventKind.RUNTIME, EventKind.ANNOTATION)
    return int(np.bincount(events.thread[known]).argmax()) if len(known) else ABSENT


def _before_copy(events: EventTable, links: Links, following: I8, inward: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the work after each gap copies data from the host: what the host computes before it prepares input."""
    row = links.device[np.maximum(following, 0)] if len(links.device) else following
    is_copy = (following >= 0) & (events.kind[np.maximum(row, 0)] == EventKind.MEMCPY)
    result: NDArray[np.bool_] = is_copy & inward[events.name[np.maximum(row, 0)]]
    return result


def _axes(events: EventTable, links: Links, threads: I8) -> tuple[Axis, ...]:
    """The threads, on as many axes as int64 needs."""
    call = classify(events.names)
    working = _computes_on_host(events, call, links.op_parent)
    rows = np.flatnonzero(np.isin(events.thread, threads))
    begin, end = events.start_ns[rows], events.start_ns[rows] + events.duration_ns[rows]
    low, high = (int(begin.min()), int(end.max())) if len(rows) else (0, 0)
    driver, meaning = events.kind[rows] == EventKind.RUNTIME, call[events.name[rows]]
    marked = {
        DRAINING: driver & (meaning == HostCall.WAIT),
        ALLOCATOR: driver & (meaning == HostCall.ALLOCATE),
        COMPILE_CAUSE: meaning == HostCall.COMPILE,
        COLLECTING: meaning == HostCall.COLLECT,
        INPUT_CAUSE: loads(events, call)[rows],
        HOST_WORK: working[rows],
        LAUNCHING: driver | (events.kind[rows] == EventKind.OP),
    }
    threads_per_axis = max(AXIS_LENGTH_NS // max(high - low, 1), 1)
    axes = []
    for first in range(0, len(threads), threads_per_axis):
        group = threads[first : first + threads_per_axis]
        axis = Axis(group, low, high, ())
        in_group = np.isin(events.thread[rows], group)
        thread = events.thread[rows[in_group]].astype(np.int64)
        start, stop = axis.at(thread, begin[in_group]), axis.at(thread, end[in_group])
        parts = [union(start[marked[cause][in_group]], stop[marked[cause][in_group]]) for cause in CAUSE_PRIORITY]
        axes.append(Axis(group, low, high, _taken(parts)))
    return tuple(axes)


def loads(events: EventTable, call: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """For each row, whether it loads input. A Python function that takes less than `HOST_OP_NS` is no input pipeline,
    whatever its name.
    """
    quick = (events.kind == EventKind.PYTHON) & (events.duration_ns < HOST_OP_NS)
    loading: NDArray[np.bool_] = (call[events.name] == HostCall.INPUT) & ~quick
    return loading


def _taken(parts: list[Spans]) -> tuple[Ruler, ...]:
    sums = [NO_SPANS]
    for part in parts:
        before = sums[-1]
        sums.append(union(np.concatenate([before.start, part.start]), np.concatenate([before.stop, part.stop])))
    return tuple(map(ruler, sums))


def _computes_on_host(events: EventTable, call: NDArray[np.uint8], around: I8) -> NDArray[np.bool_]:
    """Long operations that issue nothing to the device, and in which nothing does."""
    long: NDArray[np.bool_] = (events.kind == EventKind.OP) & (events.duration_ns >= HOST_OP_NS)
    if not long.any():
        return long
    driver = events.kind == EventKind.RUNTIME
    active = driver & np.isin(call[events.name], (HostCall.LAUNCH, HostCall.COPY, HostCall.WAIT))
    issues = sums_below(around, active.astype(np.int64)) > 0
    own = events.duration_ns - sums_below(around, np.where(driver, events.duration_ns, 0))
    result: NDArray[np.bool_] = long & ~issues & (own >= HOST_OP_NS)
    return result


def _recorded(events: EventTable) -> Spans:
    """Where any host thread recorded anything at all, step annotations aside."""
    rows = events.of(EventKind.OP, EventKind.RUNTIME, EventKind.PYTHON, EventKind.ANNOTATION)
    step = np.array([name.startswith(STEP_MARK) for name in events.names], dtype=bool)
    rows = rows[~step[events.name[rows]]]
    return union(events.start_ns[rows], events.end_ns[rows])


def _causes(
    host: HostTime,
    axis: Axis,
    thread: I8,
    start: I8,
    stop: I8,
    called: I8,
    returned: I8,
    before_copy: NDArray[np.bool_],
) -> I8:
    """For each gap [start, stop) whose next work is launched by a call from `called` to `returned`: ns by cause.

    From the launch call on, the time is launching. Before it, the host's causes count; time in no recorded event is
    Python, or not observed where it is long and no thread recorded anything. A gap that begins inside a wait is the
    bubble that the wait left: its dispatching and Python count as draining too, unless the host did something else for
    long.
    """
    reach = np.clip(called, start, stop)
    late = stop - reach  # the driver has the work
    within = np.clip(np.minimum(returned, stop) - reach, 0, None)
    stuck = np.where(late - within >= UNRECORDED_WAIT_NS, late - within, 0)
    loading = np.where((within >= LOADING_NS) & ~before_copy, within, 0)
    late = late - stuck - loading
    begin, end = axis.at(thread, start), axis.at(thread, reach)
    taken = [ruler.until(end) - ruler.until(begin) for ruler in axis.taken]
    amounts = {
        cause: after - before for cause, before, after in zip(CAUSE_PRIORITY, taken[:-1], taken[1:], strict=True)
    }
    beyond = np.maximum(amounts[DRAINING] - DRAIN_NS, 0)
    amounts[DRAINING] = amounts[DRAINING] - beyond
    known = beyond + sum(amounts.values(), np.zeros_like(start))
    rest = (reach - start) - known
    seen = host.anything.until(reach) - host.anything.until(start)
    silent = np.maximum((reach - start) - seen, 0)
    unseen = np.where(silent >= UNSEEN_NS, np.minimum(silent, rest), 0) if host.dispatch else rest
    amounts[PYTHON_CAUSE] = rest - unseen
    amounts[UNEXPLAINED] = unseen + beyond + stuck
    amounts[COMPILE_CAUSE] = amounts[COMPILE_CAUSE] + loading
    amounts[LAUNCHING] = amounts[LAUNCHING] + late
    # the host computes the data of a copy just before it: this counts as input, with all that lies between the
    # computing operations and with staging the data
    prepares = before_copy & (amounts[HOST_WORK] > 0)
    for cause in (HOST_WORK, PYTHON_CAUSE, UNEXPLAINED):
        amounts[INPUT_CAUSE] = amounts[INPUT_CAUSE] + np.where(prepares, amounts[cause], 0)
        amounts[cause] = np.where(prepares, 0, amounts[cause])
    staged = np.where(before_copy & (late >= HOST_OP_NS), late, 0)
    amounts[INPUT_CAUSE] = amounts[INPUT_CAUSE] + staged
    amounts[LAUNCHING] = amounts[LAUNCHING] - staged
    drains = (amounts[DRAINING] > 0) & (amounts[PYTHON_CAUSE] < UNSEEN_NS)
    for cause in (LAUNCHING, PYTHON_CAUSE):
        amounts[DRAINING] = amounts[DRAINING] + np.where(drains, amounts[cause], 0)
        amounts[cause] = np.where(drains, 0, amounts[cause])
    return np.stack([amounts[cause] for cause in IDLE_CAUSES], axis=1)
