"""A loop on the host issues the same few small operations in every turn: timesteps, experts, heads, rows, models.

A recurrent cell for each of 100 timesteps, a loop over 32 experts with a handful of tokens each: what could be one
operation on a larger tensor is issued a hundred times, each with the host time of a launch. A turn is one iteration of
the loop.

## How it is recognised

A live run follows one step: which instructions of the program repeat within one run of a function, and which memory
each operation reads and writes. It finds each loop with its line and its turns (comprehensions and `while` included),
and whether the turns depend on each other:

- No turn reads what an earlier one wrote: one operation can do all turns at once.
- A turn only adds to the result of earlier ones (a sum, a maximum, a row put in its place): the same, with a reduction.
- A turn reads what an earlier one computed: a recurrence, a decoder, an iterative method. It cannot be batched.
- Each turn has weights of its own, more than all turns share: these are the layers of a model, and not reported.
- The program reads numbers on the host in one turn: they may influence a later one, so the dependence is not known.

In a trace a loop is recognised where an operation that takes an index (`select`, `slice`, `narrow`, `index_select`,
`eq`) is called on the same shapes with 0, 1, 2, ... in turn. How the turns depend on each other is not recorded; only
for a recurrent layer's cells it is known.

A loop is reported with 16 turns a step or more, if its kernels are shorter than the host's time for a launch. The
backward pass of its operations belongs to it. Loops of updates (O11), of an optimizer (O03), and those that only read
numbers (O02) are other conditions'.

## What it costs

    cost (high) = idle time of the device that launching and Python cause within the loops;
                      on a CPU also the time of operations there that compute nothing
    cost (low)  = half of it, because the replacement is launched as well;
                      less the uncertainty of the step's estimated time;
                      0 where it is not known whether the turns depend on each other

On a CPU, where the turns are independent, and for a loop over experts, the high end also includes what the loops'
operations take beyond the floor of one operation on all turns: the start and end of each operation, a device that one
turn does not fill, and weights that each turn reads again.

A step never gets shorter than the device's busy time. Where the step is launch-bound (O01), O01 reports only the rest.

## What helps

Where the turns are independent:

- Experts: sort the tokens and use a grouped matmul.
- Heads, rows, models: one operation on the stacked tensors, `torch.func.vmap`, `torch.bmm`.

Where they depend on each other:

- A recurrent cell: the library's own layer (`torch.nn.LSTM`, `GRU`, `RNN`).
- A product that reads nothing from earlier turns, such as the input's part of a recurrence: one product for all turns
  before the loop. A live run knows which these are.
- Everything else: `torch.compile` of a turn, a CUDA graph of the loop.

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

from collections import Counter

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import HOST_WORK, LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.findings.claims import F8, ClaimedFinding, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.host_loops import CostlyLoop, busiest_line, inside_of, longest, together_floors
from gobrrr.analysis.host.waits import expert_loop, inner_waits
from gobrrr.conditions.common import by_line, finding, within_loops
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O04"
TITLE = "the same small operations in a loop on the host"

LOOP_KEPT = 0.5
"""Share of the loop's idle time that may stay: the replacement is launched too, or keeps the order of turns; chosen."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Loops whose kernels are shorter than their launches."""
    loops = [host_loop for host_loop in evidence.host_loops if not host_loop.for_reading]
    if not loops:
        return None
    gaps, ns = within_loops(evidence, loops, LAUNCHING, PYTHON_CAUSE)
    causes = (LAUNCHING, PYTHON_CAUSE) if evidence.device.asynchronous else (LAUNCHING, PYTHON_CAUSE, HOST_WORK)
    idle = float(ns.sum()) / evidence.steps.count
    low, high = path_of(evidence).host_saving(LOOP_KEPT * idle, idle)
    known = any(loop.loop.apart or loop.loop.needing for loop in loops)
    calls, beyond = _own_cost(evidence, loops)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_places(evidence, loops),
        at_stake=(low if known else 0.0, high + float(beyond.sum()) / evidence.steps.count),
        claim=of_gaps(evidence, gaps, ns, ns if known else np.zeros(len(ns)), causes=causes)
        + of_calls(calls, np.zeros(len(calls)), beyond),
        certainty="high" if idle >= 0.2 * evidence.wall_ns and known else "medium",
        treatments=_treatments(evidence, loops),
        facts=[*_facts(evidence, loops), f"{evidence.device.idles_for} {units.duration(idle)} a step within them"],
    )


def _treatments(evidence: Evidence, loops: list[CostlyLoop]) -> list[str]:
    """What helps each kind of loop; if the turns' dependence is not known, first what works in any case."""
    whole = ["cuda-graph", "compile"] if evidence.device.captures else ["compile"]
    apart, needing = any(loop.loop.apart for loop in loops), any(loop.loop.needing for loop in loops)
    experts = _over_experts(evidence, loops)
    batched = ["grouped-matmul"] if experts else ["batched-loop"]
    layer = ["recurrent-layer"] if any(loop.loop.cell is not None for loop in loops) else []
    layer += ["hoist-product"] if any(loop.loop.free for loop in loops) else []
    if apart or experts:
        return [*batched, *layer, *(whole if needing else whole[:-1])]
    return [*layer, *whole, *([] if all(loop.loop.needing for loop in loops) else batched)]


def _over_experts(evidence: Evidence, loops: list[CostlyLoop]) -> bool:
    """Whether one of the loops goes over experts."""
    return not all(loop.loop.needing for loop in loops) and expert_loop(evidence, inner_waits(evidence)) is not None


def _own_cost(evidence: Evidence, loops: list[CostlyLoop]) -> tuple[I8, F8]:
    """(calls of the loops, ns of each beyond its floor): start and end of tiny operations, a device that is not full.

    On a GPU only for loops whose turns can be batched; those of a loop over experts can (`grouped-matmul`).
    """
    experts = _over_experts(evidence, loops)
    every = not evidence.device.asynchronous
    batchable = [loop for loop in loops if every or loop.loop.apart or (experts and not loop.loop.needing)]
    calls = np.flatnonzero(inside_of(evidence, batchable)[evidence.calls.first])
    return calls, np.maximum(np.nan_to_num(evidence.calls.ns[calls] - together_floors(evidence)[calls]), 0.0)


def _facts(evidence: Evidence, loops: list[CostlyLoop]) -> list[str]:
    count = evidence.recorded_steps.count
    piece = "piece of device work" if evidence.device.asynchronous else "operation"
    facts = []
    for first in by_line(loops):
        same = [loop for loop in loops if loop.loop.source == first.loop.source]
        turns = sum(loop.turns for loop in same) / count
        issued = sum(loop.issued for loop in same) / count
        where = first.loop.source or f"{evidence.events.name_of(first.loop.row)} with 0, 1, 2, ... in turn"
        facts += [
            f"{where}: {units.a_step(turns, 'turn')}, {units.things(issued, piece)}, "
            f"{units.count(issued / turns)} a turn",
            _need(evidence, first),
            *_free(evidence, first),
        ]
    return [*facts, _most(evidence, loops[0])]


def _most(evidence: Evidence, loop: CostlyLoop) -> str:
    """A loop's most frequent operations, and how long they take."""
    links, events = evidence.priced.links, evidence.events
    rows = links.op[loop.work] if evidence.device.asynchronous else loop.ops
    ops = Counter(events.name_of(row) for row in rows.tolist() if row >= 0)
    common = f"most are {', '.join(sorted(ops, key=lambda name: (-ops[name], name))[:3])}"
    if not len(loop.work):
        return f"{common}; none of them computes for longer than on one element"
    median = units.duration(float(np.median(events.duration_ns[links.device[loop.work]])))
    launch = units.duration(path_of(evidence).host_per_launch)
    if not evidence.device.asynchronous:
        return f"{common}; the median one that computes takes {median}, dispatching one takes {launch}"
    return f"{common}; median kernel {median}, the host needs {launch} a launch"


def _free(evidence: Evidence, loop: CostlyLoop) -> list[str]:
    """The fact about products that depend on no earlier turn."""
    if not loop.loop.free or evidence.profile.seen is None:
        return []
    names = sorted({evidence.profile.seen.calls[call].call.name for call in loop.loop.free})
    per_turn = len(loop.loop.free) / (len(loop.loop.calls) - 1)
    return [f"products of a turn that depend on no earlier turn: {units.count(per_turn)} ({', '.join(names)})"]


def _need(evidence: Evidence, loop: CostlyLoop) -> str:
    """The fact about how a loop's turns depend on each other."""
    depends = loop.loop.depends
    if depends == "no":
        return "its turns are independent: none reads what an earlier one wrote"
    if depends == "sum":
        return "its turns are independent: each only adds to the result of earlier ones"
    if depends == "yes":
        return (
            f"its turns depend on each other: {loop.loop.carried} reads what the turn before made, so they can't be "
            "batched"
        )
    unknown = "whether its turns are independent is not known"
    if loop.loop.calls:
        return f"{unknown}: a number that one reads may be used by a later one"
    return f"{unknown}: a live run shows it (gobrrr run, gobrrr diagnose)"


def _places(evidence: Evidence, loops: list[CostlyLoop]) -> list[Place]:
    """The line of each loop; after the first, the line in it with most of its operations."""
    places = []
    for loop in by_line(loops):
        same = [other for other in loops if other.loop.source == loop.loop.source]
        device = evidence.priced.links.device[np.concatenate([other.work for other in same])]
        places.append(
            Place(
                op=longest(evidence, loop.ops) if loop.loop.source else evidence.events.name_of(loop.loop.row),
                module=evidence.module(loop.loop.row),
                source=loop.loop.source or evidence.source(loop.loop.row),
                count=sum(other.turns for other in same) / evidence.recorded_steps.count,
                ns=float(evidence.events.duration_ns[device].sum()) / evidence.recorded_steps.count,
            )
        )
    inner = busiest_line(evidence, loops[0])
    return places if inner is None else [places[0], inner, *places[1:]]
