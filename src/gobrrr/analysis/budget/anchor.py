"""The profiled timeline of a live run, brought to the step time that was measured without the profiler.

On a GPU the kernels keep their durations and the step is replayed with the cost of recording that gives the measured
time: what an event costs on this host is not assumed but solved for. Where the device bounds the step that time does
not tell, and the cost is what it was measured to be. On a CPU the operations' own computing keeps
its duration, and what lies between is shortened by the number of events recorded in it, to the same end; then calls
that stalled (gobrrr.analysis.budget.stalls) lose what they took beyond their equals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.observing import observing
from gobrrr.analysis.budget.stalls import stalled_until
from gobrrr.analysis.events.host_record import host_record
from gobrrr.analysis.events.intervals import covered, union
from gobrrr.analysis.events.links import Links, launch_call_ns
from gobrrr.analysis.events.observer import LEFT_FACTOR, NO_COST, REPEATABLE, ObserverCost
from gobrrr.analysis.events.steps import Steps, find_steps, steady
from gobrrr.analysis.replay.fitted import constant
from gobrrr.analysis.replay.simulator import replay
from gobrrr.model.events import EventTable

HALVINGS = 12
MOST_COST = 4.0
"""Times the measured cost of recording that a step may owe to it: loops of one operation are the cheapest case."""

MOST_TIMES = 2.0
"""Times the measured cost of recording that a CPU's steps may owe to it. What is left beyond that is the machine's, in
all parts of a step alike: a shared one runs at another speed from second to second."""

LEAST_PACE = 0.05
"""Of the host's time at least this share stays: steps are told apart by it."""

LEAST_GAP = 0.02
"""Of a stretch between a CPU's operations at least this share is the program's own."""

HOST_CALLS = constant("host launch")
"""What the host takes for a launch, without the profiler, in durations of a launch call as recorded: in nine of ten
steps of the bench of treatments that the host bounds no more than this. A host that the device hides and that took
longer in the profiled steps was held up there."""

LESS = 0.95
"""In such steps a host is looked for that the device hides, from the time that issuing took downwards."""

CLOSE = 0.002

TWICE = 2.0
"""A step that is as long without any of the cost of recording as without twice of it is not bound by the host."""


@dataclass(frozen=True)
class Anchored:
    """The timeline and its steps, the cost of recording that leads there, and what is left to the measured time.

    `scale`: the measured time over that of the timeline; 1 where the timeline could be brought to it. `ends`: the costs
    at the ends of what the host may take all the same, where the device or another wait bounds the step and its time
    does not tell; None where it tells.
    """

    events: EventTable
    steps: Steps
    cost: ObserverCost
    scale: float
    ends: tuple[ObserverCost, ObserverCost] | None = None


def anchor_device(
    events: EventTable,
    links: Links,
    steps: Steps,
    cost: ObserverCost,
    wall_ns: float,
    issue_ns: float | None = None,
) -> Anchored:
    """Replay with as much of `cost` as gives steps of `wall_ns`; with `cost` itself where the host hardly matters.

    Where the device hides the host, `issue_ns` says how long that takes for a step; None: it is not known.

    Where even `MOST_COST` times the cost is too little, or none of it already too much, the host itself ran at another
    pace in the profiled steps: its time is then shortened or lengthened alike, and the kernels keep theirs.
    """

    def at(cost_: ObserverCost) -> tuple[EventTable, Steps]:
        moved = replay(events, links, cost_, steps.start, steps.stop)
        return moved, steady(moved, links, find_steps(moved, links))

    factor = _solve(lambda one: at(costing(cost, one))[1].wall_ns, wall_ns, -1.0, MOST_COST + 1.0 - LEAST_PACE)
    found = costing(cost, factor)
    moved, window = at(found)

    def hides(cost_: ObserverCost) -> bool:
        return abs(at(cost_)[1].wall_ns - window.wall_ns) <= REPEATABLE * window.wall_ns

    likely = found
    if issue_ns is None:
        likely = _hurried(events, links, steps, found)
    elif hides(found.left(1 / LEFT_FACTOR)):
        likely = _issuing(events, links, steps, found, min(issue_ns, wall_ns))
        while likely.pace > found.pace and not hides(likely):
            likely = likely.left(LESS)
    if likely is not found and hides(likely):
        found, (moved, window) = likely, at(likely)  # the device bounds the step: its time does not tell
    fast, slow = (end if hides(end) else found for end in (found.left(1 / LEFT_FACTOR), found.left(LEFT_FACTOR)))
    ends = None if fast is slow else (fast, slow)
    return Anchored(moved, window, found, wall_ns / window.wall_ns if window.wall_ns else 1.0, ends)


def _issuing(events: EventTable, links: Links, steps: Steps, cost: ObserverCost, issue_ns: float) -> ObserverCost:
    """The same cost with a host that takes `issue_ns` for a step."""
    if steps.host_stop is None or not steps.begins:
        return cost
    record = host_record(events, links, steps.begins[0], steps.stop)
    inside = (record.at[:-1] >= steps.begins[0]) & (record.at[:-1] < steps.host_stop)  # it holds what was issued before
    needed = float(record.left(cost)[inside].sum())
    return cost.left(issue_ns * steps.count / needed) if needed > 0 else cost


def _hurried(events: EventTable, links: Links, steps: Steps, cost: ObserverCost) -> ObserverCost:
    """The same cost with a host that takes no longer than hosts do for so many launches, where it loads no data."""
    record = host_record(events, links, steps.start, steps.stop)
    launch = links.launch[links.launch >= 0]
    launch = np.unique(launch[(events.start_ns[launch] >= steps.start) & (events.start_ns[launch] < steps.stop)])
    call = launch_call_ns(events, launch)
    if call is None or record.loading.any():
        return cost
    issuing = (record.at[:-1] >= events.start_ns[launch].min()) & (record.at[:-1] < events.end_ns[launch].max())
    needed, most = float(record.left(cost)[issuing].sum()), HOST_CALLS * call * len(launch)
    return cost.left(most / needed) if needed > most else cost


def costing(cost: ObserverCost, factor: float) -> ObserverCost:
    """A cost that falls with -`factor`: below 0 none and a host slower by up to twice, up to `MOST_COST` so many times
    `cost`, beyond that a host that is faster, up to one that takes no time."""
    if factor < 0:
        return msgspec.structs.replace(NO_COST, pace=1.0 - factor)
    beyond = max(factor - MOST_COST, 0.0)
    scaled = cost.scaled(min(factor, MOST_COST))
    return msgspec.structs.replace(scaled, least_share=max(scaled.least_share, LEAST_PACE), pace=1.0 - beyond)


def _solve(length: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The factor at which a length that falls with it is `wanted`; an end of the range where it is not reached.

    1.0 where the length hardly depends on it: the device bounds the step, and what it lacks is not the host's.
    """
    as_measured = length(1.0)
    if _near(as_measured, wanted) or length(0.0) - length(TWICE) <= REPEATABLE * as_measured:
        return 1.0
    if as_measured > wanted:
        # where the device is the bound a faster host is no shorter step
        wanted = max(wanted, (1 + CLOSE) * length(high))
        if as_measured <= wanted:
            return 1.0
        low = 1.0
    else:
        high = 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        reached = length(middle)
        # from above alone: below it lie all the hosts that a device hides, of which the slowest is the nearest to what
        # was recorded
        if wanted <= reached <= (1 + CLOSE) * wanted:
            return middle
        low, high = (middle, high) if reached > wanted else (low, middle)
    return (low + high) / 2


def _near(one: float, wanted: float) -> bool:
    return abs(one - wanted) <= CLOSE * wanted


def anchor_processor(events: EventTable, links: Links, steps: Steps, cost: ObserverCost, wall_ns: float) -> Anchored:
    """Shorten what lies between a CPU's kernels until the steps take `wall_ns`; lengthen all where they are short.

    What recording can't explain is taken from kernels and gaps alike: the machine was slower in the profiled steps.
    """
    record = host_record(events, links, steps.start, steps.stop)
    at, charge = record.at, record.charges(cost)
    kernels = union(events.start_ns[links.device], events.end_ns[links.device])
    busy = covered(kernels, at[:-1], at[1:]).astype(np.float64)
    elapsed = busy + (record.elapsed - busy) * ~observing(events, at)
    counted = (at[:-1] >= steps.start) & (at[1:] <= steps.stop)
    wanted = wall_ns * steps.count
    stalled = np.minimum(np.diff(stalled_until(events, links, at)), busy)
    factors = _shares(elapsed, busy, stalled, charge, counted, wanted)
    passed = np.concatenate([[0.0], np.cumsum(factors)])
    moved = _moved(events, at, passed)
    window = find_steps(moved, links)
    return Anchored(moved, window, NO_COST, wall_ns / window.wall_ns if window.wall_ns else 1.0)


def _shares(
    elapsed: NDArray[np.float64], busy: NDArray[np.float64], stalled: NDArray[np.float64], charge: NDArray[np.float64],
    counted: NDArray[np.bool_], wanted: float,
) -> NDArray[np.float64]:  # fmt: skip
    """New lengths of the stretches; those that count sum to `wanted`.

    Recording's measured cost goes first, then the stalls, then recording's cost once more, then all parts alike.
    """
    total, gap = float(elapsed[counted].sum()), elapsed - busy
    if total <= wanted:
        return elapsed * (wanted / total if total else 1.0)

    def at(way: float) -> NDArray[np.float64]:
        """0 to 1: cost; to 2: stalls; to 3: cost up to `MOST_TIMES`."""
        factor = min(way, 1.0) + max(way - 2.0, 0.0) * (MOST_TIMES - 1.0)
        return busy - min(max(way - 1.0, 0.0), 1.0) * stalled + np.maximum(gap - factor * charge, LEAST_GAP * gap)

    low, high = 0.0, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[counted].sum() > wanted else (low, middle)
    found = at(high)
    return found * min(wanted / float(found[counted].sum()), 1.0)


def _moved(events: EventTable, at: NDArray[np.int64], passed: NDArray[np.float64]) -> EventTable:
    def new(times: NDArray[np.int64]) -> NDArray[np.int64]:
        inside = np.interp(times, at, passed)
        outside = np.minimum(times - at[0], 0) + np.maximum(times - at[-1], 0)
        moved: NDArray[np.int64] = np.rint(inside + outside).astype(np.int64)
        return moved

    start = new(events.start_ns)
    return replace(events, start_ns=start, duration_ns=np.maximum(new(events.end_ns) - start, 0))
