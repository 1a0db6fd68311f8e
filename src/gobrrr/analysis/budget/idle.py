"""Why the device idles: for each gap, what the host was doing on the path to the next piece of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import Call, classify
from gobrrr.analysis.events.intervals import EMPTY, Ruler, Spans, ruler, union
from gobrrr.analysis.events.links import Links
from gobrrr.model.events import ABSENT, I8, EventTable, Kind
from gobrrr.model.tree import sums_below

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


ORDER = (DRAINING, COLLECTING, COMPILING, ALLOCATOR, INPUT, HOST_WORK, LAUNCHING)
"""Where a thread's events overlap, an instant belongs to the first of these that has it."""

FARTHEST_NS = 1 << 62


@dataclass(frozen=True)
class Axis:
    """Host time of some threads, one thread behind the other on one axis, as each has its own time from `low` to
    `high`. `taken`: what the first 0, 1, 2, ... causes of `ORDER` cover together.
    """

    threads: I8  # sorted
    low: int
    high: int
    taken: tuple[Ruler, ...]

    def at(self, thread: I8, when: I8) -> I8:
        """Where an instant of a thread lies."""
        place = np.searchsorted(self.threads, thread)
        moved: I8 = np.clip(when, self.low, self.high) + place * (self.high - self.low)
        return moved


@dataclass(frozen=True)
class HostTime:
    """What the threads that launch did: the same for all devices of a trace.

    `usual`: the thread that launches most; `inward`: one flag a name, whether it is a copy's to the device;
    `anything`: all that was recorded on any thread; `dispatch`: operations, annotations or Python were recorded.
    """

    usual: int
    inward: NDArray[np.bool_]
    axes: tuple[Axis, ...]
    anything: Ruler
    dispatch: bool


def host_time(events: EventTable, links: Links) -> HostTime:
    """Host time by what it was spent on. Takes time in proportion to the events, whatever the number of threads."""
    usual = _usual(events, links)
    threads = np.unique(np.append(events.thread[links.launch[links.launch >= 0]], usual)).astype(np.int64)
    inward = np.array(["HtoD" in name or "Host -> Device" in name for name in events.names], dtype=bool)
    dispatch = bool(len(events.of(Kind.OP, Kind.ANNOTATION, Kind.PYTHON)))
    return HostTime(usual, inward, _axes(events, links, threads), ruler(_recorded(events)), dispatch)


def gaps_of(events: EventTable, links: Links, idle: Spans, device: int, host: HostTime | None = None) -> Gaps:
    """Explain each span of `idle` on `device`. `host`: what `host_time` gives, where several devices are looked at."""
    amounts = np.zeros((len(idle.start), len(CAUSES)), dtype=np.int64)
    rows = links.device
    here = np.flatnonzero(events.device[rows] == device)
    if not len(idle.start) or not len(here):
        amounts[:, CAUSES.index(UNEXPLAINED)] = idle.stop - idle.start
        return Gaps(idle.start, idle.stop, np.full_like(idle.start, ABSENT), amounts)
    host = host or host_time(events, links)
    order = here[np.argsort(events.start_ns[rows[here]], kind="stable")]
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
        mine = np.flatnonzero(np.isin(threads, axis.threads))
        times = (idle.start[mine], idle.stop[mine], called[mine], returned[mine])
        amounts[mine] = _causes(host, axis, threads[mine], *times, copies[mine])
    next_work = np.where(following >= 0, rows[np.maximum(following, 0)], ABSENT)
    return Gaps(idle.start, idle.stop, next_work, amounts)


def _usual(events: EventTable, links: Links) -> int:
    """The thread that launches most; where none does, the one with most host events."""
    known = links.launch[links.launch >= 0]
    known = known if len(known) else events.of(Kind.OP, Kind.RUNTIME, Kind.ANNOTATION)
    return int(np.bincount(events.thread[known]).argmax()) if len(known) else ABSENT


def _before_copy(events: EventTable, links: Links, following: I8, inward: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the work behind each gap brings data from the host: host computing before it prepares input."""
    row = links.device[np.maximum(following, 0)] if len(links.device) else following
    is_copy = (following >= 0) & (events.kind[np.maximum(row, 0)] == Kind.MEMCPY)
    result: NDArray[np.bool_] = is_copy & inward[events.name[np.maximum(row, 0)]]
    return result


def _axes(events: EventTable, links: Links, threads: I8) -> tuple[Axis, ...]:
    """The threads one behind the other, on as many axes as it takes to stay within int64."""
    call = classify(events.names)
    working = _computes_on_host(events, call, links.op_parent)
    rows = np.flatnonzero(np.isin(events.thread, threads))
    begin, end = events.start_ns[rows], events.start_ns[rows] + events.duration_ns[rows]
    low, high = (int(begin.min()), int(end.max())) if len(rows) else (0, 0)
    driver, meaning = events.kind[rows] == Kind.RUNTIME, call[events.name[rows]]
    marked = {
        DRAINING: driver & (meaning == Call.WAIT),
        ALLOCATOR: driver & (meaning == Call.ALLOCATE),
        COMPILING: meaning == Call.COMPILE,
        COLLECTING: meaning == Call.COLLECT,
        INPUT: loads(events, call)[rows],
        HOST_WORK: working[rows],
        LAUNCHING: driver | (events.kind[rows] == Kind.OP),
    }
    most = max(FARTHEST_NS // max(high - low, 1), 1)
    axes = []
    for first in range(0, len(threads), most):
        some = threads[first : first + most]
        axis = Axis(some, low, high, ())
        here = np.isin(events.thread[rows], some)
        thread = events.thread[rows[here]].astype(np.int64)
        start, stop = axis.at(thread, begin[here]), axis.at(thread, end[here])
        parts = [union(start[marked[cause][here]], stop[marked[cause][here]]) for cause in ORDER]
        axes.append(Axis(some, low, high, _taken(parts)))
    return tuple(axes)


def loads(events: EventTable, call: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """One flag a row: whether it loads input. A function that makes a batch in less than `HOST_OP_NS`, as an operation
    does that is not taken for work of the host's, is no input pipeline, whatever it is called.
    """
    quick = (events.kind == Kind.PYTHON) & (events.duration_ns < HOST_OP_NS)
    found: NDArray[np.bool_] = (call[events.name] == Call.INPUT) & ~quick
    return found


def _taken(parts: list[Spans]) -> tuple[Ruler, ...]:
    both = [EMPTY]
    for part in parts:
        before = both[-1]
        both.append(union(np.concatenate([before.start, part.start]), np.concatenate([before.stop, part.stop])))
    return tuple(map(ruler, both))


def _computes_on_host(events: EventTable, call: NDArray[np.uint8], around: I8) -> NDArray[np.bool_]:
    """Operations that take long and issue nothing to the device, nor does anything within them."""
    long: NDArray[np.bool_] = (events.kind == Kind.OP) & (events.duration_ns >= HOST_OP_NS)
    if not long.any():
        return long
    driver = events.kind == Kind.RUNTIME
    active = driver & np.isin(call[events.name], (Call.LAUNCH, Call.COPY, Call.WAIT))
    issues = sums_below(around, active.astype(np.int64)) > 0
    own = events.duration_ns - sums_below(around, np.where(driver, events.duration_ns, 0))
    result: NDArray[np.bool_] = long & ~issues & (own >= HOST_OP_NS)
    return result


def _recorded(events: EventTable) -> Spans:
    """Where any host thread recorded anything at all, step annotations aside."""
    rows = events.of(Kind.OP, Kind.RUNTIME, Kind.PYTHON, Kind.ANNOTATION)
    step = np.array([name.startswith("ProfilerStep") for name in events.names], dtype=bool)
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
    begin, end = axis.at(thread, start), axis.at(thread, reach)
    taken = [one.until(end) - one.until(begin) for one in axis.taken]
    amounts = {cause: both - before for cause, before, both in zip(ORDER, taken[:-1], taken[1:], strict=True)}
    beyond = np.maximum(amounts[DRAINING] - DRAIN_NS, 0)
    amounts[DRAINING] = amounts[DRAINING] - beyond
    known = beyond + sum(amounts.values(), np.zeros_like(start))
    rest = (reach - start) - known
    seen = host.anything.until(reach) - host.anything.until(start)
    silent = np.maximum((reach - start) - seen, 0)
    unseen = np.where(silent >= UNSEEN_NS, np.minimum(silent, rest), 0) if host.dispatch else rest
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
