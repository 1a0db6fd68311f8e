"""The optimizer updates one parameter at a time.

AdamW on one parameter is a dozen pointwise operations. A model of 100 parameters makes 1,000 launches of them, most on
a few thousand numbers. The foreach form makes a few dozen launches for all, the fused form a few.

## How it is recognised

At least 60 launches a step, of which at least four of five are neither `_foreach_` nor `_fused_`, in either

- the optimizer's own annotation (`Optimizer.step#...`); or, without one,
- a row of pointwise calls of which at least half work in place and some are those of an Adam (`addcdiv_`, `sqrt`).

Other loops of updates, such as an average over the weights, are O11's.

The foreach and the fused form make a call for each parameter group. Where one step of the optimizer makes 16 calls of
the same kind or more, it has that many groups: often one for each parameter, where only a few settings differ.

## What it costs

    cost (high) = idle time of the device that launching and Python cause before these calls
                      + launch latency and ramp-up (up to 2 us) of each call after which the device waits for the host
    cost (low)  = half of that idle time: the foreach form still goes through the parameters on the host

Measured elsewhere: a loop of 9 to 16 ms took 7 with foreach and 2 with fused. A step never gets shorter than the
device's busy time. Where the step is launch-bound (O01), O01 reports only the rest.

With many groups the high end is all of that idle time except one group's, and the low end 0: how many of their settings
differ is not known.

On a CPU the computation itself is on the critical path. The fused form makes one pass over memory where the others make
several: it reads the parameter, its gradient and two averages and writes three of them, 7 tensor accesses where AdamW's
separate operations make 20. So there

    cost (high) = dispatch and Python as above + computing time beyond 7/20 of the floors

## What helps

- `torch.optim.AdamW(..., fused=True)`, or `foreach=True`.
- `torch.compile(optimizer.step)`.
- One group for all parameters that have the same settings.

It gives nothing where the host is far ahead when the optimizer begins.

## Sick

```python
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
```

## Healthy

```python
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
```
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.findings.claims import F8, ClaimedFinding, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of, queued, step_saving
from gobrrr.analysis.host.optimizers import FUSED_PASSES, LEAST_UPDATE_RUN, LIST_OPS, calls_of_lists
from gobrrr.analysis.replay.what_if import FIXED_NS
from gobrrr.conditions.common import PLACES_SHOWN, finding, launching
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O03"
TITLE = "an optimizer that updates one parameter at a time"
TITLE_GROUPS = "an optimizer with many parameter groups, updated one at a time"

SINGLE_PARAMETER_SHARE = 0.8
"""The least share of the calls that take one parameter: the foreach form has a few of those as well; chosen."""

OPTIMIZER_KEPT = 0.5
"""Share of the idle time that the foreach form may keep; chosen, not measured."""

MANY_GROUPS = 16
"""The least number of groups reported: weights with and without decay, on two devices, in two types are eight."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Many launches of updates, few of them for all parameters at once."""
    links, events, count = evidence.priced.links, evidence.events, evidence.recorded_steps.count
    updates = evidence.updates
    names = [events.name_of(row) for row in links.op[updates.work].tolist()]
    single = sum(not any(part in name for part in LIST_OPS) for name in names)
    by_parameter = len(names) >= LEAST_UPDATE_RUN * count and single >= SINGLE_PARAMETER_SHARE * len(names)
    groups = 0 if by_parameter else calls_of_lists(evidence)
    if not by_parameter and groups < MANY_GROUPS:
        return None
    gaps, behind = launching(evidence)
    gaps = gaps[np.isin(behind, updates.work)]
    ns = evidence.budget.gaps.of(LAUNCHING, PYTHON_CAUSE)[gaps].astype(np.float64)
    if groups:
        return _by_group(evidence, updates.work, groups, gaps, ns * (1.0 - 1.0 / groups))
    idle = float(ns.sum()) / evidence.steps.count
    path, ranked = path_of(evidence), Counter(names).most_common(PLACES_SHOWN)
    busy = float(events.duration_ns[links.device[updates.work]].sum()) / count
    device = evidence.device
    rest = f"{device.idles_for} {units.duration(idle)} {'before' if device.asynchronous else 'beside'}"
    low, high = path.host_saving(OPTIMIZER_KEPT * idle, idle)
    if device.asynchronous:  # the host launches the next one meanwhile: their time goes with its own
        calls, own = _ramps(evidence, updates.work)
        high += float(own.sum()) / evidence.steps.count
    else:
        calls, own = _beyond_one_pass(evidence, updates.work)
        high += step_saving(evidence, calls, np.zeros(len(calls)), own)[1]
    none = np.zeros(len(calls))
    common = ", ".join(f"{name} {units.count(number / count)}" for name, number in ranked)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, updates.work, name, number / count) for name, number in ranked],
        at_stake=(low, high),
        claim=of_gaps(evidence, gaps, ns, causes=(LAUNCHING, PYTHON_CAUSE)) + of_calls(calls, none, own),
        certainty="high" if updates.annotated else "medium",
        treatments=["fused-optimizer"],
        facts=[
            f"{units.count(len(names) / count)} of {units.count(path.launches)} "
            f"{device.launches} a step are "
            + ("the optimizer's" if updates.annotated else "updates in place, one after another"),
            f"{units.count(single / count)} of them take one parameter each ({common})",
            f"their {device.kernels} take {units.duration(busy)} a step; {rest} them",
        ],
    )


def _by_group(evidence: Evidence, work: I8, groups: int, gaps: I8, ns: F8) -> ClaimedFinding | None:
    """The finding about many groups. `ns`: what a single group would save of each idle stretch."""
    events = evidence.events
    counts = Counter(events.name_of(row) for row in evidence.priced.links.op[work].tolist())
    lists = [name for name, _ in counts.most_common() if any(part in name for part in LIST_OPS)]
    where = next(iter(lists or counts), None)
    idle = float(ns.sum()) / evidence.steps.count
    return finding(
        evidence,
        CODE,
        TITLE_GROUPS,
        where=[_place(evidence, work, where, groups)] if where is not None else [],
        at_stake=(0.0, path_of(evidence).host_saving(0.0, idle)[1]),
        claim=of_gaps(evidence, gaps, ns, np.zeros(len(ns)), causes=(LAUNCHING, PYTHON_CAUSE)),
        certainty="medium",
        treatments=["fewer-groups"],
        facts=[
            f"one step of the optimizer makes {groups} calls of the same kind, one for each group of parameters",
            f"{evidence.device.idles_for} {units.duration(idle)} a step that a single group would not need",
        ],
    )


def _place(evidence: Evidence, work: I8, name: str, count: float) -> Place:
    """The place of the updates of one name: the program's line that calls the optimizer."""
    rows = (row for row in evidence.priced.links.op[work].tolist() if evidence.events.name_of(row) == name)
    return Place(op=name, source=evidence.source(next(rows)), count=count)


def _ramps(evidence: Evidence, work: I8) -> tuple[I8, F8]:
    """(the updates' calls after which a GPU waits for the host, ns of launch latency and ramp-up of each).

    Their memory traffic is M01's.
    """
    calls = np.flatnonzero(np.isin(evidence.calls.first, work) & ~queued(evidence))
    return calls, np.minimum(evidence.calls.ns[calls], FIXED_NS)


def _beyond_one_pass(evidence: Evidence, work: I8) -> tuple[I8, F8]:
    """(the updates' calls on a CPU, ns of each beyond its part of one fused pass)."""
    calls = np.flatnonzero(np.isin(evidence.calls.first, work))
    kept = FUSED_PASSES * np.nan_to_num(evidence.calls.floor_ns[calls], nan=np.inf)
    return calls, np.maximum(evidence.calls.ns[calls] - kept, 0.0)
