"""The device waits for its input: loading, decoding or augmenting data delays the step.

The device idles until the batch is there, with a loader in the training thread (`num_workers=0`), too few workers, or
transforms on the host between the loader and the copy. From pageable memory the copy itself delays the step too: it
blocks the host and runs at a fraction of the link's bandwidth.

## How it is recognised

Idle time of the device that is attributed to input:

- time in a DataLoader's `__next__`;
- operations that compute on the host (100 us or longer, with no launch inside) in a gap that ends in a copy of at least
  1 MB from the host.

Copies that no kernel overlaps are in the budget's `transfer` line.

## What it costs

    cost (low)  = idle time in a DataLoader and in host operations that prepare a copy, less W - its low end
    cost (high) = all of the idle time in such gaps + the copies from the host that nothing overlaps

W is the step time, estimated with an interval. The difference between the two ends is allocation and release of host
memory, page faults and Python, which also go away when other processes do the work. A step never gets shorter than the
device's other work.

## What helps

- `DataLoader(num_workers=N, persistent_workers=True)`: the step then takes max(step, item time * batch / N).
- `pin_memory=True`, `.to(device, non_blocking=True)` and prefetching one batch on a separate stream: the copy overlaps.
- Transforms on the device, or done once and stored.
- For a data set in memory, where picking an item costs more than making it: one index a batch, `x[at], y[at]`, or
  `__getitems__`. The finding says so where over half of a batch's time goes to picking items (`aten::select` and the
  like) and joining them (`collate`, `aten::stack`), at less than 100 us an item. Workers do not help there: sending the
  batch between processes costs more than indexing it.
- One loader for all epochs, with `persistent_workers=True`: without it each epoch starts its workers anew.

It does not help where the loader is fast and the gap is launching (O01).

## Sick

```python
for images, labels in DataLoader(dataset, batch_size=128):  # decodes in this thread
    images = normalise(images)  # on the host
    step(images.to("cuda"), labels.to("cuda"))  # pageable: blocks
```

## Healthy

```python
loader = DataLoader(dataset, batch_size=128, num_workers=8, pin_memory=True, persistent_workers=True)
for images, labels in loader:
    images = images.to("cuda", non_blocking=True)
    step(normalise(images), labels.to("cuda", non_blocking=True))
```
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr import units
from gobrrr.analysis.events.intervals import Spans, covered, union
from gobrrr.analysis.findings.claims import F8, ClaimedFinding, of_gaps, of_work
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.inputs import host_rows, input_gaps, input_stretches, inward_copies
from gobrrr.analysis.host.items import indexed, starts
from gobrrr.conditions.common import LEAST_STEP_SHARE, PLACES_SHOWN, finding, of_step, place_of_row
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "D01"
TITLE = "waiting for input"


@dataclass(frozen=True)
class _Input:
    """Ns of one step: idle in loading and host operations, idle in all input gaps, copies that nothing overlaps."""

    prepared: float
    gaps: float
    copies: float
    by_gap: F8  # `prepared` by gap, for the whole window


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Idle time before input copies and in loaders."""
    waiting = _measure(evidence)
    wall = evidence.wall_ns
    if waiting.prepared < LEAST_STEP_SHARE * wall:
        return None
    path = path_of(evidence)
    low, high = waiting.prepared, min(waiting.gaps + waiting.copies, path.idle + waiting.copies)
    pageable = _pageable(evidence)
    gaps = input_stretches(evidence)
    length = (evidence.budget.gaps.stop - evidence.budget.gaps.start)[gaps].astype(np.float64)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_places(evidence),
        at_stake=(low - path.spread.down, max(low, high)),
        claim=of_gaps(evidence, gaps, length, waiting.by_gap)
        + of_work(evidence, inward_copies(evidence), certain=False),
        certainty="high" if waiting.prepared >= 0.1 * wall else "medium",
        treatments=[
            "dataloader-workers" if indexed(evidence) is None else "index-batch",
            *([] if pageable or not evidence.device.own_memory else ["prefetch-pinned"]),
        ],
        facts=[*_facts_cpu(evidence, waiting, path.busy), *_loader_facts(evidence)]
        if not evidence.device.asynchronous
        else [
            *_loader_facts(evidence),
            f"the device idles for {of_step(evidence, waiting.gaps)} before its input is there, "
            f"{_of_that(waiting.prepared, waiting.gaps)} in loading and host operations",
            *([_copies_fact(waiting.copies, pageable)] if waiting.copies else []),
            f"the device's other work takes {units.duration(path.busy - waiting.copies)} a step: the next bottleneck",
        ],
    )


def _facts_cpu(evidence: Evidence, waiting: _Input, busy: float) -> list[str]:
    """The facts if the processor that computes is the one that loads: no copies, no link."""
    return [
        f"{of_step(evidence, waiting.gaps)} pass before its input is there, "
        f"{_of_that(waiting.prepared, waiting.gaps)} in loaders and long operations on the host",
        f"the operations of the step compute for {units.duration(busy)}: the next bottleneck",
    ]


def _copies_fact(ns: float, pageable: float) -> str:
    memory = ", from pageable memory" if pageable else ""
    return f"copies from the host that nothing overlaps: {units.duration(ns)} a step{memory}"


def _of_that(part: float, whole: float) -> str:
    """A part of the time that the sentence named just before."""
    return "all of it" if units.duration(part) == units.duration(whole) else f"{units.duration(part)} of that"


def _loader_facts(evidence: Evidence) -> list[str]:
    """What the loader spends its time on, besides making the items."""
    items, begun = indexed(evidence), starts(evidence).length / evidence.steps.count
    facts = []
    if items is not None:
        facts.append(
            f"the data set is indexed item by item: {items.items:,.0f} items a batch, and "
            f"{units.percent(items.picking)} of the loader's time goes to picking and joining them: index by batch"
        )
    if begun:
        facts.append(
            f"the loader's workers are started in the step: {units.duration(begun)} a step under the profiler; with "
            "persistent_workers=True and one loader they start once"
        )
    return facts


def _measure(evidence: Evidence) -> _Input:
    count = evidence.steps.count
    stretches, gaps = input_stretches(evidence), evidence.budget.gaps
    start, stop = gaps.start[stretches], gaps.stop[stretches]
    by_gap = covered(_spans(evidence, host_rows(evidence)), start, stop).astype(np.float64)
    copies = evidence.budget.owned_ns[inward_copies(evidence)].sum()
    return _Input(float(by_gap.sum()) / count, float((stop - start).sum()) / count, float(copies) / count, by_gap)


def _spans(evidence: Evidence, rows: I8) -> Spans:
    return union(evidence.replayed.start_ns[rows], evidence.replayed.end_ns[rows])


def _pageable(evidence: Evidence) -> float:
    """Ns of copies from pageable memory in one step."""
    events, rows = evidence.replayed, evidence.priced.links.device[inward_copies(evidence)]
    rows = rows[[("Pageable" in events.name_of(int(row))) for row in rows]] if len(rows) else rows
    return float(events.duration_ns[rows].sum()) / evidence.steps.count


def _places(evidence: Evidence) -> list[Place]:
    """The loaders and host operations with the most time, by name."""
    rows = _working(evidence)
    events = evidence.replayed
    by_name = [rows[events.name[rows] == name] for name in np.unique(events.name[rows])]
    count = evidence.steps.count
    loaders = [
        place_of_row(evidence, int(alike[0]), len(alike) / count, _spans(evidence, alike).length / count)
        for alike in by_name
    ]
    return sorted(loaders, key=lambda place: (-(place.ns or 0.0), place.op or ""))[:PLACES_SHOWN]


def _working(evidence: Evidence) -> I8:
    """Rows of loaders and host operations within the input gaps."""
    gaps = input_gaps(evidence)
    rows = host_rows(evidence)
    spans = union(np.array([gap.start for gap in gaps]), np.array([gap.stop for gap in gaps]))
    events = evidence.replayed
    inside = covered(spans, events.start_ns[rows], events.end_ns[rows]) > 0
    return rows[inside]
