"""Activations are computed a second time in the backward pass, although there is memory to keep them.

Activation checkpointing keeps only the inputs of a block and runs its forward pass again during the backward pass: a
third more work if all blocks do it. That is the price of a batch or a model that would not fit otherwise. If it would
fit, checkpointing gains nothing.

## How it is recognised

Operations that run inside the backward pass with grad mode on: `torch.utils.checkpoint`, both forms. A backward pass
that builds a graph as a whole (`create_graph=True`) does not count.

The memory test: what these calls write is an upper bound on what would have to be kept. The finding holds if the
measured peak plus all of it fits into nine tenths of the device's memory. If it would not fit, checkpointing does its
work, and there is no finding. If the peak is not known, as in a trace, the finding says so and has low certainty.

## What it costs

    cost (high) = device time of the calls that are computed again
                      + idle time of the device that launching and Python cause before them
    cost (low)  = the same; 0 where the peak is not known

The first term counts only while the step waits for the device (W - host), the second only while the device idles.

## What helps

- No checkpointing, or only for some of the blocks.
- Selective checkpointing: keep the results of matmuls and attention, compute pointwise operations again
  (`torch.utils.checkpoint.create_selective_checkpoint_contexts`).
- With `torch.compile`: `torch._functorch.config.activation_memory_budget`, swept and measured. The budget is for saved
  activations, and the peak does not follow it strictly (pytorch#197838).

## Sick

```python
for block in blocks:  # 12 GB of 80 in use
    x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
```

## Healthy

```python
for block in blocks:
    x = block(x)
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.findings.claims import F8, ClaimedFinding, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of, step_saving
from gobrrr.conditions.common import by_signature, finding, launching, of_step, places
from gobrrr.model.events import I8
from gobrrr.model.live import DeviceMemory

CODE = "R01"
TITLE = "activations recomputed although memory is free"

USABLE = 0.9
"""Share of the device's memory that a step can use; the context, the libraries and the allocator have the rest."""

ENGINE = "autograd::engine"
"""The name of autograd's events begins with this."""

REENTRANT = "CheckpointFunction"
"""The autograd node of the checkpoint form that runs a backward pass inside its own."""


def check(evidence: Evidence) -> ClaimedFinding | None:
    """Forward work inside the backward pass, and whether its results would fit."""
    calls = recomputed_calls(evidence)
    if not len(calls):
        return None
    memory, kept = evidence.profile.memory, _kept_bytes(evidence, calls)
    fits = _fits(memory, kept)
    if fits is False:
        return None
    ns, count = evidence.calls.ns[calls], evidence.steps.count
    gaps, idle = _issued(evidence, calls)
    sure = 1.0 if fits else 0.0
    device = step_saving(evidence, calls, sure * ns, ns, len(calls) / count)
    waited = float(idle.sum()) / count
    host = path_of(evidence).host_saving(sure * waited, waited)
    return finding(
        evidence,
        CODE,
        TITLE if fits else "activations recomputed",
        where=places(evidence, by_signature(evidence, calls)),
        at_stake=(device[0] + host[0], device[1] + host[1]),
        claim=of_calls(calls, sure * ns, ns)
        + of_gaps(evidence, gaps, idle, sure * idle, causes=(LAUNCHING, PYTHON_CAUSE)),
        gone=calls,
        certainty="high" if fits else "low",
        treatments=["no-checkpoint"],
        facts=[
            f"{units.a_step(len(calls) / count, 'call')} in the backward pass that the forward pass has made before: "
            f"{of_step(evidence, float(ns.sum()) / count)}, and "
            f"{units.duration(waited)} of dispatch and Python before them",
            _of_memory(memory, kept),
        ],
    )


def _issued(evidence: Evidence, calls: I8) -> tuple[I8, F8]:
    """(idle stretches before the calls, ns of launching and Python in each)."""
    gaps, behind = launching(evidence)
    gaps = gaps[np.isin(evidence.priced.links.op[behind], evidence.calls.op[calls])]
    return gaps, evidence.budget.gaps.of(LAUNCHING, PYTHON_CAUSE)[gaps].astype(np.float64)


def _kept_bytes(evidence: Evidence, calls: I8) -> float:
    """The most bytes that would have to be kept in one step: all that the calls write."""
    return sum(evidence.group_of(call).work.bytes_written or 0.0 for call in calls.tolist()) / evidence.steps.count


def _fits(memory: DeviceMemory | None, kept: float) -> bool | None:
    """Whether the measured peak plus `kept` fits into the device's memory; None if that is not known."""
    if memory is None or memory.capacity_bytes is None:
        return None
    if kept > USABLE * memory.capacity_bytes:
        return False
    if memory.peak_bytes is None:
        return None
    return memory.peak_bytes + kept <= USABLE * memory.capacity_bytes


def _of_memory(memory: DeviceMemory | None, kept: float) -> str:
    most = f"keeping their results takes {units.bytes_(kept)} at most"
    if memory is None or memory.capacity_bytes is None:
        return f"{most}; how much memory is free is not known"
    of = units.bytes_(float(memory.capacity_bytes))
    if memory.peak_bytes is None:
        return f"{most}; the device has {of}, of which the peak in use is not known"
    return f"{most}; the peak in use is {units.bytes_(float(memory.peak_bytes))} of {of}"


def recomputed_calls(evidence: Evidence) -> I8:
    """Calls that repeat in a backward pass what the forward pass did.

    Autograd's own backward operations run with grad mode off, and the profiler gives them no sequence number. A
    checkpoint runs the forward pass again with grad mode on, so its operations have sequence numbers inside the
    backward pass.

    They are in a checkpoint's own node, or in a node that also has backward work with grad mode off. With
    `create_graph=True` all work of a node has grad mode on: that builds a graph and repeats nothing.
    """
    names = evidence.events.names
    if not any(name.startswith(ENGINE) for name in names):
        return np.empty(0, dtype=np.int64)
    by_row: dict[int, tuple[int, bool]] = {}
    plain: set[int] = set()
    again: list[tuple[int, int]] = []
    for call, row in enumerate(evidence.calls.op.tolist()):
        if row not in by_row:
            by_row[row] = _node(evidence, row)
        node, graded = by_row[row]
        if node >= 0 and graded:
            again.append((call, node))
        elif node >= 0:
            plain.add(node)
    repeated = [call for call, node in again if node in plain or REENTRANT in evidence.events.name_of(node)]
    return np.array(repeated, dtype=np.int64)


def _node(evidence: Evidence, row: int) -> tuple[int, bool]:
    """(the autograd node's event around a call, -1 outside of a backward pass; whether the call has grad mode on)."""
    graded = False
    for ancestor in (row, *evidence.ancestors(row)) if row >= 0 else ():
        name = evidence.events.name_of(ancestor)
        if name.startswith(ENGINE):
            return ancestor, graded
        graded = graded or (name.startswith("aten::") and int(evidence.events.sequence[ancestor]) >= 0)
    return -1, False
