"""Fit what recording costs the host: the constants of `gobrrr.analysis.observer.DEFAULT_COST`.

    python -m bench.fit_observer_cost

Replays every shipped trace under a grid of costs and compares the step with its time measured without the profiler
(truth.json, labels.json: an H100 with a slow, shared host). Writes bench/results/observer_cost.json: the grid, best
first, and the ratio replayed / measured of each trace under the constants in use. Traces with Python stacks are left
out: there is one, and `STACKS_COST` rests on it alone.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench.accuracy import shipped
from gobrrr.analysis.links import Links, link
from gobrrr.analysis.observer import DEFAULT_COST, ObserverCost
from gobrrr.analysis.replay import replay
from gobrrr.analysis.steps import Steps, find_steps, steady
from gobrrr.model.events import EventTable
from gobrrr.observe.trace import read_trace

RESULTS = Path(__file__).resolve().parent / "results" / "observer_cost.json"
OP_NS = (12e3, 24e3, 36e3)
RUNTIME_NS = (12e3, 24e3, 36e3)
SHARE = (0.4, 0.45, 0.5, 0.55, 0.6)
Case = tuple[str, EventTable, Links, Steps, float]


def cases() -> list[Case]:
    """(name, events, links, steps, measured ms) of every shipped trace without stacks."""
    result = []
    for name, path, times in shipped():
        rank = read_trace(path).ranks[0]
        if "with_stack" not in rank.meta.recorded:
            links = link(rank.events)
            result.append((name, rank.events, links, find_steps(rank.events, links), statistics.mean(times)))
    return result


def ratio(case: Case, cost: ObserverCost) -> float:
    """Replayed over measured step time."""
    _, events, links, steps, measured_ms = case
    other = replay(events, links, cost, steps.start, steps.stop)
    return steady(other, links, find_steps(other, links)).wall_ns / 1e6 / measured_ms


def main() -> int:
    """Fit, write, print the best."""
    every = cases()
    grid: list[dict[str, Any]] = []
    for op, runtime, share in itertools.product(OP_NS, RUNTIME_NS, SHARE):
        cost = ObserverCost(op_ns=op, runtime_ns=runtime, annotation_ns=op, python_ns=8e3, least_share=share)
        errors = [abs(math.log(ratio(case, cost))) for case in every]
        row = {"op_ns": op, "runtime_ns": runtime, "least_share": share}
        grid.append({**row, "mean_abs_log": statistics.mean(errors), "median_abs_log": statistics.median(errors)})
        print(grid[-1], flush=True)
    grid.sort(key=lambda one: one["mean_abs_log"])
    results = {
        "command": "python -m bench.fit_observer_cost",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "in_use": {key: getattr(DEFAULT_COST, key) for key in ("op_ns", "runtime_ns", "least_share")},
        "ratio_in_use": {case[0]: ratio(case, DEFAULT_COST) for case in every},
        "grid": grid,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print("best:", grid[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
