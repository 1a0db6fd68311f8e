"""Python's garbage collector stops the program in the middle of steps.

The collector runs when enough objects have been created since its last run. A run of the oldest generation visits every
object that could be part of a reference cycle: with a large framework and a dataset of Python objects that is millions
of objects and tenths of a second. With several ranks each pauses at another time, and all wait for the one that pauses.

## How it is recognised

The collector's own callbacks in a live run's steps without the profiler: the duration, generation and step of each run.
The program's own `gc.collect()` counts as well.

## What it costs

    cost (high) = time in the collector, the mean of a step, without short runs of a generation that ran in one or two
                      steps: a run under 10 ms is no stall, and how often it comes is not known
    cost (low)  = the same for generations that ran in three or more steps

A pause in one of ten steps counts with a tenth of its length. It is in no line of the budget, which is that of the
median step. For a generation that ran in one or two steps the mean is a guess, and the finding says so.

## What helps

- `gc.collect(); gc.freeze()` when everything is built: the objects that exist then are not visited again.
- `gc.disable()`, and `gc.collect()` every N steps, on all ranks in the same step.
- No `gc.collect()` in each step.
- Large tables as arrays or tensors, not as lists of dictionaries.

Reference cycles that hold tensors keep their memory until the next collection.

## Sick

```python
samples = [{"id": i, "path": f"{i}.png"} for i in range(2_000_000)]
for batch in loader:
    step(batch)  # the collector visits all samples now and then
```

## Healthy

```python
gc.collect()
gc.freeze()
gc.disable()
for number, batch in enumerate(loader):
    step(batch)
    if number % 1000 == 0:
        gc.collect(1)
```
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import COLLECTING, LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.events.ratios import share
from gobrrr.analysis.findings.claims import ClaimedFinding, TimeClaim, of_gaps, outside
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import frames
from gobrrr.conditions.common import PLACES_SHOWN, finding, needs_live
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.live import Collector

CODE = "O07"
TITLE = "garbage collection pauses"

LEAST_COLLECTED_STEPS = 3
"""With runs in fewer steps their mean says little about later steps; chosen, not measured."""

STALL_NS = 10_000_000
"""A run of this length is worth reporting, even if it was the only one; chosen, not measured."""

PAUSE_CAUSES = (COLLECTING, PYTHON_CAUSE, LAUNCHING)
"""The causes of idle time that may contain a pause: the profiler records no event for it."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """The collector's time in the steps without the profiler."""
    collector = evidence.profile.collector
    if collector is None:
        return needs_live(CODE)
    if not collector.runs:
        return None
    ns, low = _counted(collector, stalls=True), _counted(collector, stalls=False)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_places(evidence),
        at_stake=(low, ns),
        claim=_claim(evidence, collector, ns, low),
        certainty="high" if low >= 0.5 * ns else "low",
        treatments=["gc-freeze"],
        facts=_facts(collector),
    )


def _counted(collector: Collector, *, stalls: bool) -> float:
    """Ns a step of the generations that ran in enough steps; with `stalls` also of the long runs of others."""
    steps: dict[int, set[int]] = defaultdict(set)
    for run in collector.runs:
        steps[run.generation].add(run.step)
    taken = (
        run.ns
        for run in collector.runs
        if len(steps[run.generation]) >= LEAST_COLLECTED_STEPS or (stalls and run.ns >= STALL_NS)
    )
    return share(sum(taken), collector.steps) or 0.0


def _per_step(collector: Collector) -> list[float]:
    taken = [0.0] * collector.steps
    for run in collector.runs:
        if 0 <= run.step < collector.steps:
            taken[run.step] += run.ns
    return taken


def _claim(evidence: Evidence, collector: Collector, high: float, low: float) -> TimeClaim:
    """The median step's pauses lie in its idle stretches; the rest is in none of the analysed steps."""
    count, gaps = evidence.steps.count, evidence.budget.gaps
    ns = gaps.of(*PAUSE_CAUSES).astype(np.float64)
    inside = min(median(_per_step(collector)) * count, high * count, float(ns.sum()))
    part = ns * (share(inside, float(ns.sum())) or 0.0)
    beyond, sure = high * count - inside, share(low, high) or 0.0
    return of_gaps(evidence, np.arange(len(gaps)), part, sure * part, causes=PAUSE_CAUSES) + outside(
        beyond, sure * beyond
    )


def _facts(collector: Collector) -> list[str]:
    runs, steps = collector.runs, collector.steps
    hit = len({run.step for run in runs})
    generations = Counter(run.generation for run in runs)
    counts = ", ".join(f"{count} of generation {generation}" for generation, count in sorted(generations.items()))
    longest = max(runs, key=lambda run: run.ns)
    facts = [
        f"{units.things(len(runs), 'run')} of the collector in {units.count(hit)} of {units.things(steps, 'step')} "
        f"({counts}), {units.duration(collector.ns_per_step)} a step on average",
        f"the longest took {units.duration(longest.ns)}, of generation {longest.generation}",
    ]
    if collector.tracked is not None:
        facts.append(f"a full collection visits {units.things(collector.tracked, 'object')}")
    rare = len({run.step for run in runs if run.generation == longest.generation})
    if rare < LEAST_COLLECTED_STEPS:
        facts.append(
            f"generation {longest.generation} ran in {units.count(rare)} of the steps: its mean cost is a guess"
        )
    return facts


def _places(evidence: Evidence) -> list[Place]:
    """The lines where the program itself collects, if frames show them."""
    rows = frames(evidence, lambda name: name == "<built-in function collect>" or name.endswith("gc.collect"))
    lines = Counter(evidence.source(int(row)) for row in rows)
    count = evidence.steps.count
    return [
        Place(op="gc.collect", source=line, count=number / count) for line, number in lines.most_common(PLACES_SHOWN)
    ]
