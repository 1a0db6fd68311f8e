"""More threads than processors: they take turns, and each operation waits for the slowest.

Torch splits an operation on a CPU among as many threads as the machine has cores, and waits for the last one. Where
fewer processors are available (a container's quota, an affinity mask, other processes), a thread that is not scheduled
holds up the rest. A data loader's worker processes multiply this: each may open a thread pool of its own.

## How it is recognised

In a live run, one of these:

- Torch has more threads within an operation than this process may use processors (affinity mask and control group).
- The loader's workers have.
- There are no more threads than processors, but together they were ready to run and waited for a processor for a tenth
  of the step or more: other processes occupy it.

The finding also shows the involuntary context switches of the steps without the profiler, and the load before the first
step.

## What it costs

    cost (high), threads = what the operations that are split among threads take above their floors
    cost (high), shared  = what all operations take above their floors, up to the time that threads waited
    cost (high), workers = the device's idle time before its input and while the host computes
    cost (low)           = 0

An operation is split if it has at least 32,768 elements (torch's grain size), or is a matrix product, a convolution,
attention or a recurrent layer. An idle thread of the pool spins for a while; if other processes compete for the
processors it takes the place of the thread that works, so small operations take longer too. Only a run with fewer
threads can show how much is saved.

## What helps

- `torch.set_num_threads(N)` or `OMP_NUM_THREADS=N`, with N the processors that are available.
- `torch.set_num_threads(1)`, `cv2.setNumThreads(0)` in the loader's `worker_init_fn`, and fewer workers.

## Sick

```python
torch.set_num_threads(64)  # the machine's cores; the container may use 4
```

## Healthy

```python
torch.set_num_threads(len(os.sched_getaffinity(0)))
```
"""

from __future__ import annotations

import math

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import HOST_WORK, INPUT_CAUSE
from gobrrr.analysis.findings.claims import NO_CLAIM, ClaimedFinding, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.conditions.common import by_signature, finding, needs_live, places
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.events import I8
from gobrrr.model.live import Threads
from gobrrr.model.work import Tensor, TensorList

CODE = "O09"
TITLE = "more threads than processors"
TITLE_SHARED = "threads that wait for processors used by others"

GRAIN = 32_768
"""Elements below which torch does not split an operation (at::internal::GRAIN_SIZE)."""

SPLIT_FAMILIES = ("matmul", "convolution", "attention", "recurrent")
"""Families that their libraries split regardless of torch's grain size."""

OWN_THREADS = 3
"""Threads of a worker that computes on one: the main thread, one that feeds the queue, one that watches the parent."""

MOST_WORKING = 2.0
"""Working threads for each processor that are no finding: workers wait most of the time; chosen, not measured."""

LEAST_WAIT = 0.1
"""The least share of the step that threads wait for a processor if other processes occupy it; chosen, not measured."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Threads of this process and of its workers, compared with the processors."""
    threads = evidence.profile.threads
    if threads is None:
        return needs_live(CODE)
    room = max(math.ceil(threads.available), 1)
    own, workers = threads.intra > room, working(threads) > MOST_WORKING * room
    shared = _shared(evidence, threads)
    if not own and not workers and not shared:
        return None
    path, count = path_of(evidence), evidence.steps.count
    calls = _split(evidence) if (own or shared) and evidence.device.on_host else np.empty(0, dtype=np.int64)
    if shared and not own and len(calls):
        calls = np.arange(len(evidence.calls), dtype=np.int64)
    above = np.maximum(evidence.calls.ns - np.nan_to_num(evidence.calls.floor_ns), 0.0)[calls]
    if not own and above.any():
        above *= min(shared * count / float(above.sum()), 1.0)
    gaps = evidence.budget.gaps
    idle = gaps.of(INPUT_CAUSE, HOST_WORK).astype(np.float64) * (own or workers)
    high = path.device_saving(0.0, float(above.sum()) / count)[1]
    high += path.host_saving(0.0, float(idle.sum()) / count)[1]
    claim = of_calls(calls, np.zeros_like(above), above) if len(calls) else NO_CLAIM
    return finding(
        evidence,
        CODE,
        TITLE if own or workers else TITLE_SHARED,
        where=places(evidence, by_signature(evidence, calls)),
        at_stake=(0.0, high),
        claim=claim
        + of_gaps(evidence, np.arange(len(gaps)), idle, np.zeros_like(idle), causes=(INPUT_CAUSE, HOST_WORK)),
        certainty="medium",
        treatments=["limit-threads"],
        facts=_facts(threads, float(above.sum()) / count, float(idle.sum()) / count, own=own, shared=shared > 0),
    )


def working(threads: Threads) -> float:
    """Threads of all workers that may compute at one time; 0 without workers."""
    return (threads.workers or 0) * max((threads.worker_threads or 1.0) - OWN_THREADS, 1.0)


def _shared(evidence: Evidence, threads: Threads) -> float:
    """Ns of a step that threads waited for a processor; 0 if operations are not split, or below `LEAST_WAIT`.

    A thread that runs meanwhile spins until the waiting ones are done.
    """
    waited = threads.waited_ns or 0.0
    return waited if threads.intra > 1 and evidence.device.on_host and waited >= LEAST_WAIT * evidence.wall_ns else 0.0


def _split(evidence: Evidence) -> I8:
    """Calls that are split among threads."""
    return evidence.calls_where(np.array([_is_split(group) for group in evidence.priced.groups], dtype=bool))


def _is_split(group: CallGroup) -> bool:
    return group.work.family in SPLIT_FAMILIES or _elements(group) >= GRAIN


def _elements(group: CallGroup) -> int:
    """Elements of a call's largest argument; a list of tensors counts as one."""
    elements = [0]
    for argument in group.call.inputs:
        if isinstance(argument, Tensor):
            elements.append(math.prod(argument.shape))
        elif isinstance(argument, TensorList):
            elements.append(sum(math.prod(item.shape) for item in argument.items))
    return max(elements)


def _facts(threads: Threads, above: float, idle: float, *, own: bool, shared: bool) -> list[str]:
    quota = f", of which the control group allows {threads.quota:g}" if threads.quota is not None else ""
    facts = [f"{units.things(threads.usable, 'processor')} may be used{quota}"]
    if own or shared:
        facts.append(f"torch splits an operation among {units.things(threads.intra, 'thread')}")
        facts.append(
            f"operations that are split take {units.duration(above)} a step above their floors"
            if own
            else f"because threads wait, operations take up to {units.duration(above)} a step above their floors"
        )
    if threads.workers:
        of_threads = f" of {threads.worker_threads:g} threads each" if threads.worker_threads is not None else ""
        facts.append(f"a data loader has {units.things(threads.workers, 'worker process')}{of_threads}")
    if idle > 0:
        facts.append(f"{units.duration(idle)} a step of waiting for input and computing on the host")
    if threads.waited_ns is not None:
        facts.append(f"its threads waited {units.duration(threads.waited_ns)} a step for a processor, in all")
    if threads.involuntary_switches is not None:
        facts.append(f"involuntary context switches: {units.a_step(threads.involuntary_switches)}")
    if threads.load is not None and threads.processors is not None:
        facts.append(
            f"load {threads.load:.1f} on {units.things(threads.processors, 'processor')} before the first step"
        )
    return facts
