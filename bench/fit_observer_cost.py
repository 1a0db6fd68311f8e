"""Fit what recording costs the host, and how well it is known: the constants of `gobrrr.analysis.events.observer`.

    python -m bench.fit_observer_cost
    python -m bench.fit_observer_cost --here    hold the calibration of `gobrrr machine` against small models

Replays every shipped trace under a grid of costs and compares the step with its times measured without the profiler
(truth.json, labels.json: an H100 with a slow, shared host). An error is how far the step lies outside the measured
range, as the absolute logarithm of the ratio to its nearer end. Then, under the constants in use, intervals of growing
width. The held-out traces of bench/accuracy.py are not looked at.

Writes bench/results/observer_cost.json: the grid, best first; each trace under the constants in use, and under the
best constants of all workloads but its own; the intervals by width. Traces with Python stacks are left out of the grid
(there is one, and `STACKS_COST` rests on it alone) and not of the intervals.

`--here` (needs torch) calibrates this CPU's host and takes the calibrated costs out of recordings of host-bound steps
that the calibration has not seen, with several shares that stay: what is left, over the step's time without the
profiler, is what `CALIBRATED_SHARE` rests on. It is kept in the same file, under "here".
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from bench import pages
from bench.accuracy import shipped
from gobrrr.analysis.answer.study import estimated
from gobrrr.analysis.budget.lead import running
from gobrrr.analysis.events.host_record import host_record
from gobrrr.analysis.events.links import Links, link
from gobrrr.analysis.events.observer import DEFAULT_COST, LEFT_FACTOR, STACKS_COST, ObserverCost, observer_cost
from gobrrr.analysis.events.steps import StepWindow, find_steps, steady
from gobrrr.analysis.replay.graph import graph_of, host_needs
from gobrrr.analysis.replay.simulator import replayed
from gobrrr.hardware.ceilings import machine_of
from gobrrr.hardware.measure import CallTimer, Device, need_torch
from gobrrr.hardware.measure.observer import measure_observer, recording
from gobrrr.hardware.measure.settings import preserved
from gobrrr.model.diagnosis import Wall
from gobrrr.model.events import EventTable
from gobrrr.model.machine import Machine, ObserverCosts, RecordingCost
from gobrrr.model.measured import MeasuredFigure, Measurement
from gobrrr.observe.trace import read_trace

RESULTS = pages.RESULTS / "observer_cost.json"
EVENT_NS = (12e3, 24e3, 36e3, 54e3, 80e3)
SHARE = (0.45, 0.475, 0.5, 0.525, 0.55, 0.575, 0.6, 0.625, 0.65)
FACTOR = (*(round(1 + step / 100, 2) for step in range(10, 42, 2)), 1.25, 1.27, 1.29)
HERE_SHARE = (0.0, 0.1, 0.2, 0.35, 0.5)
WIDEST = 0.25
"""Of the estimate: what docs/design.md allows as half-width."""


class Case(NamedTuple):
    """One trace and its times without the profiler, in ms."""

    name: str
    events: EventTable
    links: Links
    steps: StepWindow
    measured: tuple[float, float]
    stacks: bool

    @property
    def workload(self) -> str:
        """Its name without the form."""
        return self.name.split(".")[0]


def cases() -> list[Case]:
    """Every shipped trace."""
    result = []
    for name, path, times in shipped():
        rank = read_trace(path).ranks[0]
        links = link(rank.events)
        stacks = "with_stack" in rank.meta.recorded
        steps = find_steps(rank.events, links)
        result.append(Case(name, rank.events, links, steps, (min(times), max(times)), stacks))
    return result


def step_ms(case: Case, cost: ObserverCost) -> float:
    """One replayed step."""
    graph = graph_of(case.events, case.links, cost, case.steps.start, case.steps.stop)
    moved = replayed(graph)
    alone = steady(moved, case.links, find_steps(moved, case.links))
    _, window = running(moved, case.links, alone, host_needs(graph, case.steps, alone.count))
    return window.wall_ns / 1e6


def outside(value: float, measured: tuple[float, float]) -> float:
    """The logarithm of the ratio to the nearer end of the measured range; 0 within it."""
    low, high = measured
    return math.log(value / min(max(value, low), high))


def cost_of(case: Case, event_ns: float, share: float) -> ObserverCost:
    """A cost of the grid; that of a trace with stacks is not fitted."""
    if case.stacks:
        return STACKS_COST
    return ObserverCost(op_ns=event_ns, runtime_ns=event_ns, annotation_ns=event_ns, python_ns=8e3, least_share=share)


def interval(case: Case, cost: ObserverCost, factor: float) -> Wall:
    """The estimate with its interval."""
    value = step_ms(case, cost) * 1e6
    return estimated(case.events, case.links, case.steps, cost, value, factor)


def meets(wall: Wall, measured: tuple[float, float]) -> bool:
    """Whether the interval meets the measured range."""
    assert wall.low is not None
    assert wall.high is not None
    return wall.low / 1e6 <= measured[1] and wall.high / 1e6 >= measured[0]


def half_width(wall: Wall) -> float:
    """Half the interval, as a share of the estimate."""
    assert wall.value
    assert wall.low is not None
    assert wall.high is not None
    return (wall.high - wall.low) / 2 / wall.value


def widths(every: list[Case], cost: tuple[float, float]) -> list[dict[str, Any]]:
    """For each factor: how many measured ranges the intervals meet, and how wide they are."""
    rows = []
    for factor in sorted(FACTOR):
        walls = [interval(case, cost_of(case, *cost), factor) for case in every]
        met = sum(meets(wall, case.measured) for wall, case in zip(walls, every, strict=True))
        wide = [half_width(wall) for wall in walls]
        rows.append(
            {"factor": factor, "met": met, "of": len(every), "median": statistics.median(wide), "widest": max(wide)}
        )
    return rows


def left_out(every: list[Case], errors: dict[tuple[float, float], dict[str, float]]) -> list[dict[str, Any]]:
    """Each trace under the best constants of all other workloads."""
    rows = []
    for case in every:
        others = [other.name for other in every if other.workload != case.workload and not other.stacks]
        best = min(errors, key=lambda cost: statistics.mean(abs(errors[cost][name]) for name in others))
        wall = interval(case, cost_of(case, *best), LEFT_FACTOR)
        assert wall.value is not None
        rows.append(
            {
                "name": case.name,
                "event_ns": best[0],
                "least_share": best[1],
                "error": outside(wall.value / 1e6, case.measured),
                "half_width": half_width(wall),
                "met": meets(wall, case.measured),
            }
        )
    return rows


def small_steps(torch: Any) -> dict[str, Any]:
    """Steps on tensors of a few elements: forward, training with an optimizer's loop, a recurrence, views."""
    nn, x, square = torch.nn, torch.rand(4, 8), torch.rand(16, 16)
    deep = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8)) for _ in range(40)])
    cell = nn.LSTMCell(8, 8)
    optimizer = torch.optim.SGD(deep.parameters(), lr=1e-3, momentum=0.9, foreach=False)

    def training() -> None:
        optimizer.zero_grad()
        deep(x).sum().backward()
        optimizer.step()

    def recurrence() -> None:
        state = None
        for _ in range(60):
            state = cell(x, state)

    def views() -> None:
        seen = square
        for _ in range(200):
            seen = seen.view(4, 64).view(16, 16).t().t()

    return {"forward": lambda: deep(x), "training": training, "recurrence": recurrence, "views": views}


def timed_ns(step: Any) -> float:
    """The median of 15 runs."""
    times = []
    for _ in range(15):
        began = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times)


def left_of(step: Any, mode: str, cost: RecordingCost, torch: Any) -> dict[str, Any]:
    """What deflating leaves of a recorded step, by share that stays, over its time without the profiler."""
    device = Device(torch, "cpu")
    before = timed_ns(step)
    with recording(device, mode) as profiler:
        for number in range(8):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step()
    after = timed_ns(step)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "trace.json")
        profiler.export_chrome_trace(path)
        rank = read_trace(path, python=True).ranks[0]
    cost_here = observer_cost(rank, Machine(name="", observer=ObserverCosts(modes={mode: cost})))
    events, unprofiled = rank.events, min(before, after)
    links = link(events)
    marks = [row for row in range(len(events)) if events.name_of(row).startswith("ProfilerStep#")][2:]
    recorded = statistics.median(int(events.duration_ns[row]) for row in marks)
    shares = {}
    for share in HERE_SHARE:
        lengths = []
        for row in marks:
            record = host_record(events, links, int(events.start_ns[row]), int(events.end_ns[row]))
            at, charge = record.at, record.charges(replace(cost_here, least_share=share))
            inside = (at[:-1] >= events.start_ns[row]) & (at[1:] <= events.end_ns[row])
            elapsed = np.diff(at)[inside]
            lengths.append(float(np.maximum(elapsed - charge[inside], share * elapsed).sum()))
        shares[str(share)] = statistics.median(lengths) / unprofiled
    return {"mode": mode, "recorded": recorded / unprofiled, "left": shares}


def here() -> int:
    """Calibrate, record, compare, write."""
    torch = need_torch()
    bench = CallTimer(Device(torch, "cpu"))
    with preserved(torch):
        torch.set_num_threads(1)
        records = measure_observer(bench, bench.now() + 30)
        entries = tuple(record for record in records if isinstance(record, MeasuredFigure))
        costs = machine_of(Measurement(environment=bench.device.environment(), entries=entries)).observer
        assert costs is not None, "the calibration was too unsteady on this host"
        rows = [
            {"step": name, **left_of(step, mode, cost, torch)}
            for name, step in small_steps(torch).items()
            for mode, cost in costs.modes.items()
        ]
    off = {str(share): statistics.mean(abs(math.log(row["left"][str(share)])) for row in rows) for share in HERE_SHARE}
    results = pages.read(RESULTS)
    results["here"] = {"costs": to_builtins(costs), "mean_abs_log": off, "steps": rows}
    pages.write(RESULTS, results)
    for row in rows:
        print(row)
    print(off)
    return 0


def main() -> int:
    """Fit, write, print the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="the calibration against small models on this CPU")
    if parser.parse_args().here:
        return here()
    every = cases()
    fitted = [case for case in every if not case.stacks]
    errors = {
        cost: {case.name: outside(step_ms(case, cost_of(case, *cost)), case.measured) for case in fitted}
        for cost in itertools.product(EVENT_NS, SHARE)
    }
    grid = [
        {
            "event_ns": event_ns,
            "least_share": share,
            "mean_abs_log": statistics.mean(map(abs, found.values())),
            "median_abs_log": statistics.median(map(abs, found.values())),
        }
        for (event_ns, share), found in errors.items()
    ]
    grid.sort(key=lambda row: row["mean_abs_log"])
    in_use = (DEFAULT_COST.op_ns, DEFAULT_COST.least_share)
    by_width, apart = widths(every, in_use), left_out(every, errors)
    results = {
        "command": "python -m bench.fit_observer_cost",
        "date": pages.today(),
        "in_use": {"event_ns": in_use[0], "least_share": in_use[1], "left_factor": LEFT_FACTOR},
        "error_in_use": {case.name: outside(step_ms(case, cost_of(case, *in_use)), case.measured) for case in every},
        "widths": by_width,
        "widest_factor": max(row["factor"] for row in by_width if row["widest"] <= WIDEST),
        "left_out": {"met": sum(row["met"] for row in apart), "of": len(apart), "traces": apart},
        "grid": grid,
    }
    if RESULTS.exists():
        results["here"] = pages.read(RESULTS).get("here")
    pages.write(RESULTS, results)
    for row in (*grid[:6], *by_width):
        print(row)
    print("widest factor:", results["widest_factor"], "left out:", results["left_out"]["met"], "of", len(apart))
    return 0


if __name__ == "__main__":
    sys.exit(main())
