"""The profiled timeline of a live run, adjusted to the step time that was measured without the profiler.

On a GPU the kernels keep their durations, and the step is replayed with the cost of recording that gives the measured
time: the cost of an event on this host is solved for, not assumed. Where the device bounds the step, that time says
nothing about the host, and the measured cost is used. On a CPU the operations keep their computing time, and the time
between them is shortened in proportion to the events recorded in it, to the same end; then stalled calls
(gobrrr.analysis.budget.stalls) are shortened to their equals.
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
from gobrrr.analysis.events.steps import StepWindow, find_steps, steady
from gobrrr.analysis.replay.fitted import constant
from gobrrr.analysis.replay.simulator import replay
from gobrrr.model.events import EventTable

COST_BISECTIONS = 12
"""Bisections of the factor of the cost of recording, which is known to about a thousandth after them."""

MOST_COST = 4.0
"""The largest multiple of the measured cost of recording that is taken out of a step. The measurement is a loop of one
operation, which is the cheapest case. Chosen, not measured."""

MOST_PROCESSOR_COST = 2.0
"""The same for a CPU's steps. What remains beyond is taken from all parts of a step alike: a shared machine changes its
speed from second to second. Chosen, not measured."""

LEAST_PACE = 0.05
"""The least share of the host's time that stays, so that steps remain distinct. Chosen, not measured."""

LEAST_GAP = 0.02
"""The least share that stays of a stretch between a CPU's operations. Chosen, not measured."""

HOST_CALLS = constant("host launch")
"""Host time per launch without the profiler, in recorded durations of a launch call: the limit that nine of ten
host-bound steps of the bench of treatments keep. Where the device hides a host that took longer in the profiled steps,
the host was delayed there."""

HOST_TIME_FACTOR = 0.95
"""Factor from one try to the next of the host's time, downwards from the issue time, until the device hides the host.
Chosen, not measured."""

REACHED_SHARE = 0.002
"""A step time within this share of the wanted one counts as reached. Chosen, not measured."""

DOUBLE_COST = 2.0
"""The host does not bound a step whose length is the same with none and with twice the cost of recording removed."""


@dataclass(frozen=True)
class Anchored:
    """The timeline and its steps, the cost of recording that gives them, and the remaining factor to the measured time.

    `scale`: the measured time over that of the timeline; 1 where the timeline reaches it. `ends`: the costs for the
    shortest and the longest host time that the measured time allows, where the device or another wait bounds the step;
    None where the step's time determines the host's.
    """

    events: EventTable
    steps: StepWindow
    cost: ObserverCost
    scale: float
    ends: tuple[ObserverCost, ObserverCost] | None = None


def anchor_device(
    events: EventTable,
    links: Links,
    steps: StepWindow,
    cost: ObserverCost,
    wall_ns: float,
    issue_ns: float | None = None,
) -> Anchored:
    """Replay with the multiple of `cost` that gives steps of `wall_ns`; with `cost` itself where the host hardly
    matters.

    `issue_ns`: the host's time to issue a step, for a host that the device hides; None: not known.

    Where even `MOST_COST` times the cost is too little, or no cost is already too much, the host itself ran at another
    speed in the profiled steps: all of its time is scaled, and the kernels keep their durations.
    """

    def at(trial_cost: ObserverCost) -> tuple[EventTable, StepWindow]:
        moved = replay(events, links, trial_cost, steps.start, steps.stop)
        return moved, steady(moved, links, find_steps(moved, links))

    factor = _solve(lambda times: at(costing(cost, times))[1].wall_ns, wall_ns, -1.0, MOST_COST + 1.0 - LEAST_PACE)
    best = costing(cost, factor)
    moved, window = at(best)

    def hides(trial_cost: ObserverCost) -> bool:
        return abs(at(trial_cost)[1].wall_ns - window.wall_ns) <= REPEATABLE * window.wall_ns

    candidate = best
    if issue_ns is None:
        candidate = _hurried(events, links, steps, best)
    elif hides(best.left(1 / LEFT_FACTOR)):
        candidate = _issuing(events, links, steps, best, min(issue_ns, wall_ns))
        while candidate.pace > best.pace and not hides(candidate):
            candidate = candidate.left(HOST_TIME_FACTOR)
    if candidate is not best and hides(candidate):
        best, (moved, window) = candidate, at(candidate)  # the device bounds the step: its time does not fix the host's
    fast, slow = (end if hides(end) else best for end in (best.left(1 / LEFT_FACTOR), best.left(LEFT_FACTOR)))
    ends = None if fast is slow else (fast, slow)
    return Anchored(moved, window, best, wall_ns / window.wall_ns if window.wall_ns else 1.0, ends)


def _issuing(events: EventTable, links: Links, steps: StepWindow, cost: ObserverCost, issue_ns: float) -> ObserverCost:
    """The same cost, with a host that takes `issue_ns` to issue a step."""
    if steps.host_stop is None or not steps.begins:
        return cost
    record = host_record(events, links, steps.begins[0], steps.stop)
    # the record also holds what was issued before the steps
    inside = (record.at[:-1] >= steps.begins[0]) & (record.at[:-1] < steps.host_stop)
    needed = float(record.left(cost)[inside].sum())
    return cost.left(issue_ns * steps.count / needed) if needed > 0 else cost


def _hurried(events: EventTable, links: Links, steps: StepWindow, cost: ObserverCost) -> ObserverCost:
    """The same cost, with the host's time limited to `HOST_CALLS` per launch, where the host loads no data."""
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
    """A cost of recording such that more of the host's time is removed the larger `factor` is.

    Below 0: no cost, and a host up to twice as slow. From 0 to `MOST_COST`: `factor` times `cost`. Beyond: a faster
    host, down to one that takes no time.
    """
    if factor < 0:
        return msgspec.structs.replace(NO_COST, pace=1.0 - factor)
    beyond = max(factor - MOST_COST, 0.0)
    scaled = cost.scaled(min(factor, MOST_COST))
    return msgspec.structs.replace(scaled, least_share=max(scaled.least_share, LEAST_PACE), pace=1.0 - beyond)


def _solve(length: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The factor at which the decreasing function `length` is `wanted`; an end of the range where it is not reached.

    1.0 where the length hardly depends on the factor: the device bounds the step.
    """
    as_measured = length(1.0)
    if _near(as_measured, wanted) or length(0.0) - length(DOUBLE_COST) <= REPEATABLE * as_measured:
        return 1.0
    if as_measured > wanted:
        # once the device is the bound, a faster host does not shorten the step
        wanted = max(wanted, (1 + REACHED_SHARE) * length(high))
        if as_measured <= wanted:
            return 1.0
        low = 1.0
    else:
        high = 1.0
    for _ in range(COST_BISECTIONS):
        middle = (low + high) / 2
        reached = length(middle)
        # from above only: the device hides every host below, and the slowest of those is the nearest to the recording
        if wanted <= reached <= (1 + REACHED_SHARE) * wanted:
            return middle
        low, high = (middle, high) if reached > wanted else (low, middle)
    return (low + high) / 2


def _near(length: float, wanted: float) -> bool:
    return abs(length - wanted) <= REACHED_SHARE * wanted


def anchor_processor(
    events: EventTable, links: Links, steps: StepWindow, cost: ObserverCost, wall_ns: float
) -> Anchored:
    """Shorten the time between a CPU's kernels until the steps take `wall_ns`; lengthen all where they are too short.

    What recording can't explain is taken from kernels and gaps alike: the machine was slower in the profiled steps.
    """
    record = host_record(events, links, steps.start, steps.stop)
    edges, charge = record.at, record.charges(cost)
    kernels = union(events.start_ns[links.device], events.end_ns[links.device])
    busy = covered(kernels, edges[:-1], edges[1:]).astype(np.float64)
    elapsed = busy + (record.elapsed - busy) * ~observing(events, edges)
    counted = (edges[:-1] >= steps.start) & (edges[1:] <= steps.stop)
    wanted = wall_ns * steps.count
    stalled = np.minimum(np.diff(stalled_until(events, links, edges)), busy)
    factors = _shares(elapsed, busy, stalled, charge, counted, wanted)
    passed = np.concatenate([[0.0], np.cumsum(factors)])
    moved = _moved(events, edges, passed)
    window = find_steps(moved, links)
    return Anchored(moved, window, NO_COST, wall_ns / window.wall_ns if window.wall_ns else 1.0)


def _shares(
    elapsed: NDArray[np.float64], busy: NDArray[np.float64], stalled: NDArray[np.float64], charge: NDArray[np.float64],
    counted: NDArray[np.bool_], wanted: float,
) -> NDArray[np.float64]:  # fmt: skip
    """New lengths of the stretches; the counted ones sum to `wanted`.

    Removed in this order: the measured cost of recording, the stalls, further cost of recording, then all parts alike.
    """
    total, gap = float(elapsed[counted].sum()), elapsed - busy
    if total <= wanted:
        return elapsed * (wanted / total if total else 1.0)

    def at(progress: float) -> NDArray[np.float64]:
        """The lengths at a progress from 0 to 3. To 1: the cost is removed; to 2: the stalls; to 3: more cost."""
        factor = min(progress, 1.0) + max(progress - 2.0, 0.0) * (MOST_PROCESSOR_COST - 1.0)
        return busy - min(max(progress - 1.0, 0.0), 1.0) * stalled + np.maximum(gap - factor * charge, LEAST_GAP * gap)

    low, high = 0.0, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[counted].sum() > wanted else (low, middle)
    lengths = at(high)
    return lengths * min(wanted / float(lengths[counted].sum()), 1.0)


def _moved(events: EventTable, at: NDArray[np.int64], passed: NDArray[np.float64]) -> EventTable:
    def new(times: NDArray[np.int64]) -> NDArray[np.int64]:
        inside = np.interp(times, at, passed)
        outside = np.minimum(times - at[0], 0) + np.maximum(times - at[-1], 0)
        moved: NDArray[np.int64] = np.rint(inside + outside).astype(np.int64)
        return moved

    start = new(events.start_ns)
    return replace(events, start_ns=start, duration_ns=np.maximum(new(events.end_ns) - start, 0))
