"""An average over the weights, a sum of metrics or another update goes through many tensors one by one.

`average.mul_(0.999).add_(parameter, alpha=0.001)` for each of 300 parameters is 600 operations on a few thousand
numbers each, and each goes through Python, the dispatcher and the driver. The foreach form of the same update takes
lists of tensors.

## How it is recognised

At least 60 pointwise updates a step in a row that the program calls itself, outside of an optimizer's step and of the
backward pass. At least half of them are in place, or a live run knows that they are a loop with independent turns
(iterations), such as `average = 0.999 * average + 0.001 * parameter`. Views between them do not matter. A run with
operations of an Adam in it (`addcdiv_`, `sqrt`) is an optimizer, and O03's. Any other loop with an index that counts up
is O04's.

## What it costs

    cost (high) = idle time of the device that launching and Python cause in the loop
    cost (low)  = half of it: the foreach form still goes through the tensors on the host

Measured elsewhere: 100 -> 10 ms for the average of a large model's weights, 1.12 -> 0.22 ms for 300 tensors of 64 x 64
on a CPU of two cores. A step never gets shorter than the device's busy time. Where the step is launch-bound (O01), O01
reports only the rest.

## What helps

- `torch._foreach_lerp_`, `_foreach_mul_`, `_foreach_add_` on the lists of tensors.
- `torch.optim.swa_utils.get_ema_multi_avg_fn` for an average; updating it every few steps.
- Metrics in one tensor on the device; `torch.compile` around the loop.

It gives nothing where the host is far ahead when the loop begins.

## Sick

```python
for average, parameter in zip(ema.parameters(), model.parameters()):
    average.mul_(0.999).add_(parameter, alpha=0.001)
```

## Healthy

```python
torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.001)
```
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gobrrr import units
from gobrrr.analysis.budget.idle import LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.events.intervals import covered, inside_spans, union
from gobrrr.analysis.findings.claims import ClaimedFinding, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.update_loops import UpdateLoop, update_loops
from gobrrr.conditions.common import PLACES_SHOWN, finding, launching, place_of_row
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O11"
TITLE = "many tensors updated one by one"

UPDATES_KEPT = 0.5
"""Share of the idle time that the foreach form may keep; chosen, not measured."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Long runs of updates outside of an optimizer's step."""
    loops = update_loops(evidence)
    if not loops:
        return None
    gaps, share = _idle(evidence, loops)
    ns = evidence.budget.gaps.of(LAUNCHING, PYTHON_CAUSE)[gaps] * share
    count, path = evidence.steps.count, path_of(evidence)
    idle = float(ns.sum()) / count
    rows = np.concatenate([loop.rows for loop in loops])
    turns = sum(loop.turns for loop in loops)
    ranked = Counter(name for loop in loops for name in loop.names).most_common(PLACES_SHOWN)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, loop) for loop in sorted(loops, key=lambda loop: -len(loop.rows))[:PLACES_SHOWN]],
        at_stake=path.host_saving(UPDATES_KEPT * idle, idle),
        claim=of_gaps(evidence, gaps, ns, UPDATES_KEPT * ns, causes=(LAUNCHING, PYTHON_CAUSE)),
        certainty="high" if idle >= 0.1 * evidence.wall_ns else "medium",
        treatments=["foreach"],
        facts=[
            f"{units.a_step(len(rows) / count, 'update')} of {units.things(turns / count, 'tensor')}, one by one: "
            + ", ".join(f"{name} {units.count(number / count)}" for name, number in ranked),
            f"{evidence.device.idles_for} {units.duration(idle)} a step between them",
        ],
    )


def _idle(evidence: Evidence, loops: list[UpdateLoop]) -> tuple[I8, NDArray[np.float64]]:
    """(idle stretches that end in work of a loop, the share of each that belongs to the loop).

    On a CPU the shortest operations have no device work, so it is the part of a stretch within the loop.
    """
    events, links = evidence.replayed, evidence.priced.links
    gaps, behind = launching(evidence)
    begin = np.array([events.start_ns[loop.rows].min() for loop in loops], dtype=np.int64)
    stop = np.array([events.end_ns[loop.rows].max() for loop in loops], dtype=np.int64)
    if not evidence.device.asynchronous:
        first, last = evidence.budget.gaps.start[gaps], evidence.budget.gaps.stop[gaps]
        share = covered(union(begin, stop), first, last) / np.maximum(last - first, 1)
    else:
        launch = links.launch[behind]
        share = (launch >= 0) & inside_spans(events.start_ns[np.maximum(launch, 0)], *union(begin, stop + 1))
    inside = share > 0
    return gaps[inside], share[inside].astype(np.float64)


def _place(evidence: Evidence, loop: UpdateLoop) -> Place:
    op, times = Counter(loop.names).most_common(1)[0]
    return place_of_row(evidence, int(loop.rows[0]), times / evidence.steps.count, op=f"aten::{op}")
