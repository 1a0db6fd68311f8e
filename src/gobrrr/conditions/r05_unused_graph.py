"""Autograd records a graph for a backward pass that never comes.

Where a parameter requires a gradient, autograd records each operation on it: it makes a node, keeps the tensors that
the backward pass would need, and frees all of that when the result is dropped. `model.eval()` does not change that. In
inference this work is wasted.

## How it is recognised

Autograd's sequence numbers increase from operation to operation, and no step has an operation of a backward pass. A
step in `torch.no_grad()` or `torch.inference_mode()`, or whose parameters require no gradient, has no such numbers. A
backward pass after many steps, over what all of them kept, would not be seen: the certainty is medium.

## What it costs

    cost (low)  = 0.3 d for each node, with d the time of an operation on one element on this host
    cost (high) = 2.5 d for each node, and on a CPU 1 ns for each byte that the operations write

The three factors were measured on one thread of an AMD EPYC. The cost of nodes counts only while the step waits for the
host. On a CPU each result that is kept makes the next one use new memory, which the operating system has to provide
first; that counts up to what an operation takes beyond its floor.

## What helps

- `with torch.inference_mode():` around the calls of the model, or as a decorator of the function.
- `torch.no_grad()`, where a result is later used in a step that is trained.

## Sick

```python
model.eval()
for x in batches:
    found.append(model(x).argmax(-1))
```

## Healthy

```python
model.eval()
with torch.inference_mode():
    for x in batches:
        found.append(model(x).argmax(-1))
```
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.detect.unused_graph import recorded_in_vain
from gobrrr.analysis.findings.claims import F8, ClaimedFinding, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of, step_saving
from gobrrr.analysis.host.program import program_of
from gobrrr.conditions.common import finding, launching, needs_live
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8
from gobrrr.model.tree import outermost

CODE = "R05"
TITLE = "an autograd graph that no backward pass uses"

NODE_LEAST, NODE_MOST = 0.3, 2.5
"""The cost of making and freeing a node, as a multiple of an addition of one element without it (1.65 us). A chain of
200 additions of one element took 0.31; a network of 24 times LayerNorm, Linear and GELU on [4, 64], whose parameters
have nodes of their own, 2.4 (torch 2.13, one thread of an AMD EPYC)."""

NEW_MEMORY_BYTE_NS = 1.0
"""Ns that writing a byte takes longer in new memory than in memory that was used before. Measured with products of 4
to 64 MB that are kept, and the same into one tensor (a virtual machine on an AMD EPYC; 0.9 to 1.2)."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Nodes that autograd makes without a backward pass, and their cost."""
    recorded = recorded_in_vain(evidence)
    if recorded is None:
        return None
    dispatch_ns = evidence.profile.dispatch_ns
    if dispatch_ns is None:
        return needs_live(CODE)
    count = evidence.steps.count
    nodes = float(recorded.nodes.sum()) / count
    gaps, _ = launching(evidence)
    idle = evidence.budget.gaps.of(LAUNCHING, PYTHON_CAUSE)[gaps].astype(float)
    whole = float(idle.sum()) / count
    low, high = (min(times * nodes * dispatch_ns, whole) for times in (NODE_LEAST, NODE_MOST))
    part = idle / (whole * count) if whole else idle
    least, most = path_of(evidence).host_saving(low, high)
    calls, fresh = _in_new_memory(evidence, recorded.rows)
    none = np.zeros(len(calls))
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, recorded.rows)],
        at_stake=(least, most + step_saving(evidence, calls, none, fresh)[1]),
        claim=of_gaps(evidence, gaps, high * count * part, low * count * part, causes=(LAUNCHING, PYTHON_CAUSE))
        + of_calls(calls, none, fresh),
        certainty="medium",
        treatments=["inference-mode"],
        facts=[
            f"autograd makes {units.a_step(nodes, 'node')}, and no step has a backward pass",
            *([_fresh_fact(float(fresh.sum()) / count)] if fresh.any() else []),
            f"an operation on one element takes {units.duration(dispatch_ns)} on this host; a node takes "
            f"{NODE_LEAST:g} to {NODE_MOST:g} times that",
        ],
    )


def _fresh_fact(ns: float) -> str:
    return f"earlier results are kept, so new ones need new memory: writing it takes up to {units.duration(ns)} longer"


def _in_new_memory(evidence: Evidence, rows: I8) -> tuple[I8, F8]:
    """(a CPU's calls within the operations `rows`, the ns that each may take longer because results are kept)."""
    mask = np.zeros(len(evidence.events), dtype=bool)
    mask[rows] = not evidence.device.asynchronous
    around = outermost(evidence.priced.links.op_parent, mask)
    op = evidence.calls.op
    calls = np.flatnonzero((op >= 0) & (around[np.maximum(op, 0)] >= 0))
    written = np.array([evidence.group_of(call).work.bytes_written or 0.0 for call in calls.tolist()])
    above = np.nan_to_num(evidence.calls.ns[calls] - evidence.calls.floor_ns[calls])
    return calls, np.clip(NEW_MEMORY_BYTE_NS * written, 0.0, np.maximum(above, 0.0))


def _place(evidence: Evidence, rows: I8) -> Place:
    """The statements that call the model; if they are not known, the line with the most of the operations."""
    count = len(rows) / evidence.steps.count
    forward = program_of(evidence).forward
    if forward is not None:
        return Place(op=None, source=forward.source, count=count)
    lines = Counter(filter(None, map(evidence.source, rows.tolist())))
    source = next((line for line, _ in lines.most_common(1)), None)
    return Place(op=evidence.events.name_of(int(rows[0])), source=source, count=count)
