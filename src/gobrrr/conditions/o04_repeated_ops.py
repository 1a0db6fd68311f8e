"""A loop on the host runs the same few tiny operations for each timestep, expert or row.

A cell of a recurrent net for each of 100 timesteps, a loop over 32 experts with a handful of tokens each: what is one
operation on a larger tensor is issued a hundred times, each with the host time of a launch.

## How it is recognised

An operation that takes an index (`select`, `slice`, `narrow`, `index_select`, `eq`) is called on the same shapes with
0, 1, 2, ... in turn, 16 times or more: the host counts. Between one and the next it launches work, and that work is
shorter than the host's time for a launch. What the backward pass does for these operations belongs to the loop.
Layers of a model that repeat are not counted up and are no such loop.

## What it costs

    cost (high) = idle time of the device that launching and Python cause within the loops
    cost (low)  = half of it: a recurrence keeps its order, and what replaces the loop is launched as well;
                      less what the step's estimated time may be too long by

On a CPU the high end also has what the loops' operations compute beyond their floors: the begin and end of each.

A step never gets shorter than the device's busy time. What the loop costs is part of a launch-bound step (O01), which
keeps only the rest.

## What helps

- Experts: sort the tokens and use a grouped matmul.
- Timesteps: the library's own recurrent layer (`torch.nn.LSTM`), or the input's part of all timesteps in one matmul.
- Rows: one operation on the stacked tensors, `torch.func.vmap`, `torch.bmm`.
- A CUDA graph of the loop, where its turns depend on each other.

## Sick

```python
for t in range(x.shape[0]):
    state = cell(x[t], state)
```

## Healthy

```python
out, state = torch.nn.LSTM(512, 512)(x, state)
```
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gobrrr import units
from gobrrr.analysis.claims import F8, Found, of_calls, of_gaps
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.idle import LAUNCHING, PYTHON
from gobrrr.analysis.loops import Loop, find_loops, work_of
from gobrrr.analysis.path import path_of
from gobrrr.analysis.waits import expert_loop, inner_waits
from gobrrr.conditions.common import finding, launching
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O04"
TITLE = "the same tiny operations in a loop on the host"

KEPT = 0.5
"""Share of the loop's idle time that may stay: what replaces it is launched too, or keeps the order of its turns."""

LEAST_LAUNCHES = 2
"""Launches a turn; a loop that only indexes is the business of the one around it."""


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Counting loops whose kernels are shorter than their launches."""
    links, path = evidence.priced.links, path_of(evidence)
    loops = find_loops(evidence)
    inside = np.zeros(len(links.device), dtype=bool)
    told: list[tuple[Loop, I8]] = []
    for loop in loops:
        mine = work_of(evidence, loop)
        own = evidence.events.duration_ns[links.device[mine]]
        if len(mine) >= LEAST_LAUNCHES * len(loop.begins) and np.median(own) < path.host_per_launch:
            inside[mine] = True
            told.append((loop, mine))
    if not told:
        return None
    gaps, behind = launching(evidence)
    gaps = gaps[inside[behind]]
    ns = evidence.budget.gaps.of(LAUNCHING, PYTHON)[gaps].astype(np.float64)
    idle = float(ns.sum()) / evidence.steps.count
    experts = expert_loop(evidence, inner_waits(evidence)) is not None
    low, high = path.host_saving(KEPT * idle, idle)
    calls, beyond = _own_cost(evidence, inside)
    busy = "the step spends" if evidence.on_cpu else "the device idles for"
    then = "in dispatch and Python within them" if evidence.on_cpu else "a step within them"
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, *told[0])],
        at_stake=(low, high + float(beyond.sum()) / evidence.steps.count),
        claim=of_gaps(evidence, gaps, ns, causes=(LAUNCHING, PYTHON)) + of_calls(calls, np.zeros(len(calls)), beyond),
        certainty="high" if idle >= 0.2 * evidence.wall_ns else "medium",
        treatments=["grouped-matmul" if experts else "batched-loop", *([] if evidence.on_cpu else ["cuda-graph"])],
        facts=[*_facts(evidence, told), f"{busy} {units.duration(idle)} {then}"],
    )


def _own_cost(evidence: Evidence, inside: NDArray[np.bool_]) -> tuple[I8, F8]:
    """(calls of the loops, ns of each beyond its floor) on a CPU: a tiny operation's begin and end. Else nothing."""
    if not evidence.on_cpu:
        return np.empty(0, dtype=np.int64), np.empty(0)
    calls = np.flatnonzero(inside[evidence.calls.first])
    return calls, np.maximum(np.nan_to_num(evidence.calls.ns[calls] - evidence.calls.floor_ns[calls]), 0.0)


def _facts(evidence: Evidence, told: list[tuple[Loop, I8]]) -> list[str]:
    links, count = evidence.priced.links, evidence.recorded_steps.count
    loop, mine = told[0]
    ops = [evidence.events.name_of(row) for row in links.op[mine].tolist() if row >= 0]
    common = sorted(set(ops), key=lambda name: (-ops.count(name), name))[:3]
    turns = sum(len(one.begins) for one, _ in told) / count
    launches = sum(len(work) for _, work in told) / count
    median = units.duration(float(np.median(evidence.events.duration_ns[links.device[mine]])))
    each = units.duration(path_of(evidence).host_per_launch)
    pieces = "operations that compute" if evidence.on_cpu else "pieces of device work"
    return [
        f"{evidence.events.name_of(loop.row)} counts up: {units.things(turns, 'turn')} a step, "
        f"{units.count(launches)} {pieces}, {units.count(launches / turns)} a turn",
        f"most are {', '.join(common)}; "
        + (
            f"the median one computes for {median}, dispatching one takes {each}"
            if evidence.on_cpu
            else f"median kernel {median}, the host needs {each} a launch"
        ),
    ]


def _place(evidence: Evidence, loop: Loop, mine: I8) -> Place:
    return Place(
        op=evidence.events.name_of(loop.row),
        module=evidence.module(loop.row),
        source=evidence.source(loop.row),
        count=len(loop.begins),
        ns=float(evidence.events.duration_ns[evidence.priced.links.device[mine]].sum()),
    )
