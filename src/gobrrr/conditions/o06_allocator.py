"""The step allocates memory from the driver, and the device idles meanwhile.

PyTorch caches the memory of freed tensors and reuses it: after a few steps it needs nothing more from the driver.
`cudaMalloc` and `cudaFree` (`hipMalloc`, `hipFree`) in a later step mean that the cached blocks did not fit, or were
released. Each call takes from tens of microseconds to milliseconds, and freeing waits for the device.

## How it is recognised

Idle time of the device while the thread that launches is in the driver's allocation or free calls, within the analysed
steps. Allocations in only the first of several recorded steps are a warm-up that was recorded; the finding says so. A
live run has the allocator's counts for the steps without the profiler. If it made no driver calls then, the profiler
caused the recorded ones, and there is no finding.

## What it costs

    cost (high) = idle time of the device under these calls (the budget's line `allocator`), the mean of the steps
    cost (low)  = the same where a recorded step other than the first allocates; else 0

## What helps

- No `torch.cuda.empty_cache()` and no `gc.collect()` in the loop: the next step allocates the same memory again.
- `PYTORCH_NO_CUDA_MEMORY_CACHING` (`PYTORCH_NO_HIP_MEMORY_CACHING`) unset: with it every tensor goes to the driver. A
  sign of it is as many frees as allocations in every step.
- `PYTORCH_ALLOC_CONF=expandable_segments:True`, where shapes vary from step to step or memory is nearly full.
- A smaller batch, or activation checkpointing, where memory is so full that the allocator frees and tries again
  (`torch.cuda.memory_stats()["num_alloc_retries"]`).
- For pinned memory (`cudaHostAlloc`): buffers that are allocated once.
- Warm up before profiling.

## Sick

```python
for batch in batches:
    step(batch)
    torch.cuda.empty_cache()  # every block goes back to the driver
```

## Healthy

```python
for batch in batches:
    step(batch)
```
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import ALLOCATOR
from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.findings.claims import ClaimedFinding, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import frames
from gobrrr.conditions.common import PLACES_SHOWN, finding, place_of_row, recorded_steps_of, which_steps
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8, EventKind
from gobrrr.model.frame_names import FROM_LIBRARY
from gobrrr.model.live import DeviceMemory

CODE = "O06"
TITLE = "memory allocated from the driver within the step"

EMPTY_CACHE = re.compile(rf"{FROM_LIBRARY}torch/\S*\.py\(\d+\): empty_cache$|^<built-in .*_emptyCache")
"""The function that returns all cached memory to the driver, as the profiler names its frames."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Idle time of the device while the host allocates or frees."""
    events, gaps = evidence.replayed, evidence.budget.gaps
    rows = events.of(EventKind.RUNTIME)
    rows = rows[classify(events.names)[events.name[rows]] == HostCall.ALLOCATE]
    rows = rows[(events.end_ns[rows] > evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)]
    memory = evidence.profile.memory  # of a live run's steps without the profiler
    if not len(rows) or (memory is not None and memory.mallocs == 0 and memory.frees == 0):
        return None
    own = gaps.of(ALLOCATOR).astype(np.float64)
    idle = evidence.line("overhead", ALLOCATOR)
    counted = memory is not None and bool(memory.mallocs or memory.frees)
    again = counted or bool((recorded_steps_of(evidence, rows) > 1).any())
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[*_emptied(evidence), *_places(evidence, rows)][:PLACES_SHOWN],
        at_stake=(idle if again else 0.0, idle),
        claim=of_gaps(evidence, np.arange(len(gaps)), own, causes=(ALLOCATOR,)),
        certainty="high" if again else "medium",
        treatments=["allocator"],
        facts=[
            f"the device idles for {units.duration(idle)} a step while the host allocates or frees memory",
            _calls(evidence, rows),
            which_steps(evidence, rows, "allocate", again=again),
            *_counts(memory),
        ],
    )


def _counts(memory: DeviceMemory | None) -> list[str]:
    """The allocator's own counts in a live run."""
    if memory is None:
        return []
    named = (
        (memory.mallocs, "allocations"),
        (memory.frees, "frees"),
        (memory.retries, "retries after emptying the cache"),
    )
    counts = [f"{units.count(count)} {name}" for count, name in named if count]
    return [f"a step without the profiler: {', '.join(counts)}"] if counts else []


def _emptied(evidence: Evidence) -> list[Place]:
    """Where the program empties the cache itself."""
    rows = frames(evidence, lambda name: EMPTY_CACHE.search(name) is not None)
    lines = Counter(evidence.source(int(row)) for row in rows)
    count = evidence.steps.count
    return [
        Place(op="torch.cuda.empty_cache", source=line, count=number / count) for line, number in lines.most_common()
    ]


def _calls(evidence: Evidence, rows: I8) -> str:
    names, counts = np.unique(evidence.replayed.name[rows], return_counts=True)
    ranked = sorted(zip(counts.tolist(), names.tolist(), strict=True), reverse=True)[:PLACES_SHOWN]
    count = evidence.steps.count
    texts = (f"{units.count(number / count)} {evidence.replayed.names[name]}" for number, name in ranked)
    return f"calls a step: {', '.join(texts)}"


def _places(evidence: Evidence, rows: I8) -> list[Place]:
    """The longest calls, by the operation around them."""
    events, parent = evidence.replayed, evidence.priced.links.op_parent
    longest = rows[np.argsort(-events.duration_ns[rows], kind="stable")][:PLACES_SHOWN]
    return [
        place_of_row(
            evidence, row, 1.0, float(events.duration_ns[row]),
            events.name_of(int(parent[row]) if parent[row] >= 0 else row),
        )
        for row in longest.tolist()
    ]  # fmt: skip
