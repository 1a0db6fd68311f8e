"""One rank from events to evidence: link, find the steps, price, replay without the profiler, budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np

from gobrrr.analysis.answer.summary import in_steps
from gobrrr.analysis.budget.anchor import anchor_device, anchor_processor
from gobrrr.analysis.budget.device import device_budget
from gobrrr.analysis.budget.first_uses import first_uses
from gobrrr.analysis.budget.idle import HostTime, host_time
from gobrrr.analysis.budget.lead import running
from gobrrr.analysis.events.intervals import NO_SPANS, Spans, exclusive, union
from gobrrr.analysis.events.links import Links, link
from gobrrr.analysis.events.observer import LEFT_FACTOR, NO_COST, REPEATABLE, ObserverCost, observer_cost
from gobrrr.analysis.events.steps import FEW_MISSING, StepWindow, find_steps, steady
from gobrrr.analysis.findings.evidence import Evidence, Unprofiled, calls_on_device, step_of
from gobrrr.analysis.pricing.captured import with_captured
from gobrrr.analysis.pricing.fusion import find_chains
from gobrrr.analysis.pricing.price import Priced, price_all
from gobrrr.analysis.replay.graph import StepGraph, graph_of, host_needs, recosted
from gobrrr.analysis.replay.simulator import replayed as replayed_events
from gobrrr.model.diagnosis import DeviceTotals, Wall
from gobrrr.model.events import EventTable
from gobrrr.model.live import StepTimes
from gobrrr.model.machine import Machine
from gobrrr.model.profile import RankProfile
from gobrrr.units import percent

MOST_LAUNCHES = 20_000
"""How many pieces of work the replays for the ends of the interval run. The work of one launch is never split."""

LEAST_DEVICE_SHARE = 0.01
"""A device with less than this share of the busiest device's work is not analysed (a stray copy). Chosen."""

MOST_UNLAUNCHED = 0.05
"""A trace is not replayed where more than this share of the device time has no recorded launch. Chosen."""

CLOCK_TOLERANCE_NS = 100_000
"""How far device work may begin before its launch, in ns, before the clocks count as different. Chosen."""

LEAST_REPLAYED_OVER_BUSY = 0.98
"""A replayed step may be this share of its device's busy time: rounding, no contradiction. Chosen."""


@dataclass(frozen=True)
class Study:
    """One rank, analysed.

    `evidence`: one entry per device with work in the steps; empty without device work. `ahead`: the share of the device
    work that the host had launched before the device was free for it; None if launches are not recorded.
    """

    rank: RankProfile
    links: Links
    steps: StepWindow
    priced: Priced
    devices: tuple[DeviceTotals, ...]
    wall: Wall
    evidence: tuple[Evidence, ...]
    ahead: float | None
    doubt: str | None = None  # why the step without the profiler can't be estimated
    recorded_ns: float = 0.0  # one step as the profiler recorded it
    scale: float = 1.0  # the measured step over the step of the timeline, where the two could not be made equal
    once: Spans = NO_SPANS  # first uses of kernels, which are left out of the step


@dataclass(frozen=True)
class _Brought:
    """A rank whose steps were brought to their time without the profiler, and how that was done.

    `rank`, `priced`: what the analysis uses; `seen`: the events and steps that say which devices work; `wall`: the
    step's time in the answer.
    """

    rank: RankProfile
    priced: Priced
    unprofiled: Unprofiled
    seen: tuple[EventTable, StepWindow]
    wall: Wall
    ahead: float | None
    doubt: str | None = None
    scale: float = 1.0
    once: Spans = NO_SPANS


def study(rank: RankProfile, machine: Machine | None) -> Study:
    """Analyse one rank on `machine` (None: no floors)."""
    events = rank.events
    links = link(events)
    steps = find_steps(events, links)
    priced = price_all(events, links, machine, rank.seen)
    devices = rank.devices or device_totals(rank, links)
    if not len(links.device):
        unknown = _wall_of(rank.times) if rank.times else Wall(value=None, low=None, high=None, how="unknown")
        return Study(rank, links, steps, priced, devices, unknown, (), None, recorded_ns=steps.wall_ns)
    if rank.times is not None:
        brought = _measured(rank, rank.times, machine, links, steps, priced)
    elif rank.ends is not None or "replayed" in rank.meta.recorded:
        brought = _never_profiled(rank, links, steps, priced, rank.ends or (1.0, 1.0))
    else:
        brought = _estimated(rank, machine, links, steps, priced)
    host = host_time(brought.unprofiled.replayed, links)
    evidence = tuple(_evidence(brought, device, machine, host) for device in _active(*brought.seen, links))
    wall = brought.wall if brought.unprofiled.base is None else _less_waiting(brought.wall, evidence)
    return Study(
        brought.rank, links, brought.unprofiled.recorded_steps, brought.priced, devices, wall, evidence,
        brought.ahead, brought.doubt, recorded_ns=brought.seen[1].wall_ns, scale=brought.scale, once=brought.once,
    )  # fmt: skip


def _estimated(rank: RankProfile, machine: Machine | None, links: Links, steps: StepWindow, priced: Priced) -> _Brought:
    """A trace: its graph is replayed without the profiler's cost; where that is not possible, it stays as recorded."""
    events, cost = rank.events, observer_cost(rank, machine)
    ahead = _ahead(events, links)
    doubt = unreplayable(events, links, steps) if rank.whole else "part of the file is missing"
    if doubt is None:
        once = first_uses(events, links, steps)
        graph = graph_of(events, links, cost, steps.start, steps.stop, once=once)
        replayed, window, _ = _loop(graph, steps)
        doubt = _too_short(events, links, steps, window)
    if doubt is not None:
        wall = Wall(value=None, low=None, high=None, how="unknown")
        return _Brought(
            rank, priced, Unprofiled(steps, events, steps, NO_COST, wall), (events, steps), wall, ahead, doubt
        )
    wall = estimated(events, links, steps, cost, window.wall_ns, graph=graph, once=once)
    ends = cost.left(1 / LEFT_FACTOR), cost.left(LEFT_FACTOR)
    brought = Unprofiled(steps, replayed, window, cost, wall, ends, graph)
    return _Brought(rank, priced, brought, (events, steps), wall, ahead, once=once)


def _never_profiled(
    rank: RankProfile, links: Links, steps: StepWindow, priced: Priced, ends: tuple[float, float]
) -> _Brought:
    """A timeline that no profiler slowed down: it is the step itself.

    `ends`: the interval's ends as factors of the step's time.
    """
    events = rank.events
    if "replayed" in rank.meta.recorded:
        events, steps = running(events, links, steps)
    value = steps.wall_ns
    wall = Wall(value=value, low=value * min(ends[0], 1.0), high=value * max(ends[1], 1.0), how="estimated")
    # conditions use this timeline as it is: the difference to another host is no saving
    itself = Wall(value=value, low=value, high=value, how="estimated")
    brought = Unprofiled(steps, events, steps, NO_COST, itself)
    return _Brought(rank, priced, brought, (events, steps), wall, _ahead(events, links))


def _measured(
    rank: RankProfile, times: StepTimes, machine: Machine | None, links: Links, steps: StepWindow, priced: Priced
) -> _Brought:
    """A step that was also timed without the profiler: the timeline is brought to the measured time."""
    events, wall, recorded = rank.events, _wall_of(times), steps
    priced = with_captured(priced, events, steps, rank.seen, machine)
    cost = observer_cost(rank, machine)
    if rank.device.asynchronous:
        anchored = anchor_device(events, links, steps, cost, times.wall_ns, None if rank.syncs else rank.issue_ns)
        ahead = _ahead(anchored.events, links)
    else:  # there is no queue to replay: the adjusted timeline takes the place of the recorded one
        anchored = anchor_processor(events, links, steps, cost, times.wall_ns)
        rank, recorded, ahead = replace(rank, events=anchored.events), anchored.steps, None
    brought = Unprofiled(recorded, anchored.events, anchored.steps, anchored.cost, wall, anchored.ends)
    return _Brought(rank, priced, brought, (events, steps), wall, ahead, scale=anchored.scale)


def _wall_of(times: StepTimes) -> Wall:
    how: Literal["measured", "estimated"] = "measured" if times.ns else "estimated"
    return Wall(value=times.wall_ns, low=times.low_ns, high=times.high_ns, how=how)


def unreplayable(events: EventTable, links: Links, steps: StepWindow) -> str | None:
    """Why the trace's dependency graph can't be replayed, in words; None if it can."""
    rows = links.device
    start, duration = events.start_ns[rows], events.duration_ns[rows].astype(np.float64)
    known = links.launch >= 0
    early = known & (start < events.start_ns[np.maximum(links.launch, 0)] - CLOCK_TOLERANCE_NS)
    share = float(early.sum()) / max(int(known.sum()), 1)
    if share > FEW_MISSING:
        return f"{percent(share)} of the device work begins before its launch: the clocks of host and device disagree"
    inside = (start >= steps.start) & (start < steps.stop)
    if not inside.any():
        return None
    first = int(start[known].min()) if known.any() else int(start[inside].min())
    lost = inside & ~known & (start >= first)
    share = float(duration[lost].sum()) / max(float(duration[inside].sum()), 1.0)
    if share > MOST_UNLAUNCHED:
        return f"{percent(share)} of the device time has no launch in the trace"
    if steps.missing > FEW_MISSING:
        return f"{percent(steps.missing)} of the launches have no device record"
    return None


def _too_short(events: EventTable, links: Links, steps: StepWindow, window: StepWindow) -> str | None:
    """Why the replayed step is too short, in words: it can't be shorter than its device is busy. None if it is not."""
    work = links.device[in_steps(events, links, steps)]
    for device in np.unique(events.device[work]):
        rows = work[events.device[work] == device]
        busy = union(events.start_ns[rows], events.end_ns[rows]).length / steps.count
        if window.wall_ns < LEAST_REPLAYED_OVER_BUSY * busy and window.count == steps.count:
            return "the replayed step is shorter than its device is busy"
    return None


def _evidence(brought: _Brought, device: int, machine: Machine | None, host: HostTime) -> Evidence:
    """The evidence of one device; `host`: what the host did in the steps."""
    priced, unprofiled = brought.priced, brought.unprofiled
    replayed, steps = unprofiled.replayed, unprofiled.steps
    budget = device_budget(replayed, priced, steps, device, host)
    calls = calls_on_device(replayed, priced, budget, steps)
    fusion = find_chains(priced.groups, calls.group, calls.stream, step_of(replayed, priced.links, steps, calls))
    return Evidence(brought.rank, unprofiled, machine, priced, budget, calls, fusion)


def estimated(
    events: EventTable,
    links: Links,
    steps: StepWindow,
    cost: ObserverCost,
    value: float,
    factor: float = LEFT_FACTOR,
    graph: StepGraph | None = None,
    once: Spans = NO_SPANS,
) -> Wall:
    """The estimate `value` with its interval.

    The ends are replays in which the host's remaining time is shorter and longer by `factor`. The high end also covers
    a step that runs on its own, where a loop that runs ahead would be faster. The host counts as no slower than
    recorded. Each end is at least `REPEATABLE` away. A trace with very many launches is replayed in part, and the ends
    are scaled. `graph`: of the whole trace, where it was made already; `once`: host time that is left out.
    """
    part = _front(events, links)
    if part is not None:
        (events, links), graph = part, None
        steps = find_steps(events, links)
    graph = graph or graph_of(events, links, cost, steps.start, steps.stop, once=once)
    within, alone = _replayed(graph, steps, cost)
    whole = within if part is not None else value
    if not whole > 0:
        return Wall(value=None, low=None, high=None, how="unknown")
    faster, _ = _replayed(graph, steps, cost.left(1 / factor))
    slower, _ = _replayed(graph, steps, cost.left(factor))
    slower = min(slower, steady(events, links, steps).wall_ns)
    down, up = max(1 - faster / whole, 0.0), max(max(alone, slower) / whole - 1, 0.0)
    # the host's pace and the device's clocks vary independently of each other
    down, up = math.hypot(down, REPEATABLE), math.hypot(up, REPEATABLE)
    return Wall(value=value, low=value * (1 - down), high=value * (1 + up), how="estimated")


def _less_waiting(wall: Wall, evidence: tuple[Evidence, ...]) -> Wall:
    """The wall time with a low end that has no exposed communication.

    A collective lasts until the last rank arrives. One rank's trace can't tell the transfer from waiting for another
    rank, whose host the profiler slows down as well.
    """
    if wall.value is None or wall.low is None or not evidence:
        return wall
    exposed = sum(device.line("communication") for device in evidence) / len(evidence)
    return msgspec.structs.replace(wall, low=min(wall.low, wall.value - exposed))


def _front(events: EventTable, links: Links) -> tuple[EventTable, Links] | None:
    """The trace up to the launch after the first `MOST_LAUNCHES` pieces of work; None where it is no longer than that.

    At least one launch is kept, however much work it launched.
    """
    launches, pieces = np.unique(links.launch[links.launch >= 0], return_counts=True)
    first = max(int(np.searchsorted(np.cumsum(pieces), MOST_LAUNCHES, side="right")), 1)
    if first >= len(launches):
        return None
    rows = int(launches[first])
    return events.take(np.arange(rows)), links.before(rows)


def _replayed(graph: StepGraph, steps: StepWindow, cost: ObserverCost) -> tuple[float, float]:
    """One replayed step, in ns: in a loop that runs ahead, and on its own."""
    _, window, alone = _loop(recosted(graph, cost), steps)
    return window.wall_ns, alone.wall_ns


def _loop(graph: StepGraph, steps: StepWindow) -> tuple[EventTable, StepWindow, StepWindow]:
    """(the timeline of a graph, its steps in a loop that runs ahead, the same steps on their own)."""
    links, events = graph.links, replayed_events(graph)
    alone = steady(events, links, find_steps(events, links))
    moved, window = running(events, links, alone, host_needs(graph, steps, alone.count))
    return moved, window, alone


def device_totals(rank: RankProfile, links: Links) -> tuple[DeviceTotals, ...]:
    """Busy time, span and pieces of work of each device over the whole trace."""
    events, rows = rank.events, links.device
    totals = []
    for device in np.unique(events.device[rows]):
        work = rows[events.device[rows] == device]
        start, stop = events.start_ns[work], events.end_ns[work]
        totals.append(
            DeviceTotals(
                rank=rank.rank,
                device=int(device),
                busy_total_ns=union(start, stop).length,
                span_total_ns=int(stop.max() - start.min()),
                kernels=len(work),
            )
        )
    return tuple(totals)


def _active(events: EventTable, steps: StepWindow, links: Links) -> list[int]:
    """Devices that work in the steps, most work first."""
    rows = links.device
    inside = (events.end_ns[rows] > steps.start) & (events.start_ns[rows] < steps.stop)
    rows = rows[inside]
    busy: dict[int, int] = {}
    for device in np.unique(events.device[rows]):
        work = rows[events.device[rows] == device]
        busy[int(device)] = int(exclusive(events.start_ns[work], events.end_ns[work]).sum())
    most = max(busy.values(), default=0)
    return [device for device in sorted(busy, key=lambda key: -busy[key]) if busy[device] >= LEAST_DEVICE_SHARE * most]


def _ahead(events: EventTable, links: Links) -> float | None:
    """Share of device work whose launch began before the previous work on its stream ended; None if not recorded."""
    known = np.flatnonzero(links.launch >= 0)
    if len(known) < 2:
        return None
    rows = links.device[known]
    key = events.stream[rows].astype(np.int64) * 4096 + events.device[rows]
    order = np.lexsort((events.start_ns[rows], key))
    ends = events.end_ns[rows][order][:-1]
    calls = events.start_ns[links.launch[known]][order][1:]
    same = key[order][1:] == key[order][:-1]
    return float((calls < ends)[same].mean()) if same.any() else None
