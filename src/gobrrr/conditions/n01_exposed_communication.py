"""Communication that no compute overlaps: the device waits for gradients, parameters or tokens of other devices.

A collective that runs beside the backward pass costs little. One that starts after the backward pass, one for each
parameter, or one for each micro-batch of an accumulation, is fully exposed.

## How it is recognised

Time in which only communication kernels run, for collectives that the device's next work waits for: that work was
launched before the collective was done. If the host is slower than the collectives, they are not on the critical path.
The last collective of a step cannot overlap with a backward pass that is over, and is not counted as avoidable. A
kernel that waits for another rank looks like one that sends: one rank's trace does not show how much is waiting, only
that a collective takes longer than its bytes at the link's bandwidth.

## What it costs

    cost (high) = exposed time of the collectives on the critical path - the last collective of each step
    cost (low)  = the part of it that the bytes need at the link's bandwidth; 0 where that is not known

The rest is latency, or waiting for a slower rank. Overlap reduces it only if the ranks are in step.

## What helps

- `DistributedDataParallel`, which reduces buckets during the backward pass; `bucket_cap_mb`, `static_graph=True`.
- `no_sync()` for all micro-batches of an accumulation but the last.
- One flat buffer instead of a collective for each parameter.
- FSDP: `set_modules_to_forward_prefetch`.

If a slower rank causes the wait, find that rank first (diagnose a folder with the traces of all ranks).

## Sick

```python
loss.backward()
for parameter in model.parameters():
    torch.distributed.all_reduce(parameter.grad)
```

## Healthy

```python
model = torch.nn.parallel.DistributedDataParallel(model)
loss.backward()  # buckets are reduced meanwhile
```
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gobrrr import units
from gobrrr.analysis.events.ratios import share
from gobrrr.analysis.findings.claims import F8, ClaimedFinding, of_work
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import WorkClass
from gobrrr.conditions.common import PLACES_SHOWN, finding
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "N01"
TITLE = "exposed communication"

WAITING_FACTOR = 3.0
"""A collective that takes more than this many times what its bytes need is waiting, or bound by latency; chosen."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Collectives that nothing overlaps and that later work waits for, except the last of each step."""
    events, links = evidence.replayed, evidence.priced.links
    rows = links.device
    inside = (events.end_ns[rows] > evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)
    inside &= (evidence.priced.kind == WorkClass.COMMUNICATION) & (events.device[rows] == evidence.budget.device)
    work = np.flatnonzero(inside)
    if not len(work):
        return None
    avoidable = np.setdiff1d(work[_waited_for(evidence, work)], _last(evidence, work))
    owned = evidence.budget.owned_ns.astype(np.float64)
    least = _least(evidence, avoidable)
    count = evidence.steps.count
    high = float(owned[avoidable].sum()) / count
    low = float(np.minimum(np.nan_to_num(least), owned[avoidable]).sum()) / count
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_places(evidence, avoidable),
        at_stake=(low, high),
        claim=of_work(evidence, avoidable),
        certainty="high" if low >= 0.5 * high else "low",
        treatments=["comm-overlap"],
        facts=_facts(evidence, work, avoidable, least),
    )


def _waited_for(evidence: Evidence, work: I8) -> NDArray[np.bool_]:
    """For each collective whether the device's next work had been launched when it was done."""
    events, links = evidence.replayed, evidence.priced.links
    launched = np.flatnonzero((events.device[links.device] == evidence.budget.device) & (links.launch >= 0))
    start = events.start_ns[links.device[launched]]
    order = np.argsort(start, kind="stable")
    end = events.end_ns[links.device[work]]
    position = np.searchsorted(start[order], end)
    following = launched[order[np.minimum(position, len(order) - 1)]] if len(order) else work
    waited: NDArray[np.bool_] = (position < len(order)) & (events.start_ns[links.launch[following]] < end)
    return waited


def _last(evidence: Evidence, work: I8) -> I8:
    """The last collective of each step."""
    start = evidence.replayed.start_ns[evidence.priced.links.device[work]]
    launch = evidence.priced.links.launch[work]
    when = np.where(launch >= 0, evidence.replayed.start_ns[np.maximum(launch, 0)], start)
    step = np.searchsorted(np.array(evidence.steps.begins, dtype=np.int64), when, side="right")
    order = np.lexsort((start, step))
    ends = np.append(step[order][1:] != step[order][:-1], True)
    last: I8 = work[order[ends]]
    return last


def _least(evidence: Evidence, work: I8) -> F8:
    """Ns that each collective's bytes need at the link's bandwidth; NaN where that is not known."""
    link = evidence.machine.link_bytes_per_s if evidence.machine else None
    groups = (evidence.priced.groups[int(evidence.priced.group[index])] for index in work.tolist())
    if link is None:
        return np.full(len(work), np.nan)
    bytes_ = (group.work.bytes if group.work.link == "network" else None for group in groups)
    return np.array([np.nan if size is None else size / link.value * 1e9 for size in bytes_])


def _facts(evidence: Evidence, work: I8, avoidable: I8, least: F8) -> list[str]:
    events, links, count = evidence.replayed, evidence.priced.links, evidence.steps.count
    length = float(events.duration_ns[links.device[work]].sum()) / count
    exposed = float(evidence.budget.owned_ns[work].sum()) / count
    needed = float(np.nansum(least)) / count
    on_path = float(evidence.budget.owned_ns[avoidable].sum()) / count
    facts = [
        f"{units.a_step(len(work) / count, 'collective')}: {units.duration(length)}, of which no compute overlaps "
        f"{units.duration(exposed)} ({units.percent(share(exposed, length))})",
        f"apart from the last of the step, the device's next work waits for {units.count(len(avoidable) / count)} of "
        f"them: {units.duration(on_path)}",
    ]
    if needed > 0:
        facts.append(
            f"the bytes of those need {units.duration(needed)} a step at the link's bandwidth"
            + (": the rest is waiting or latency" if on_path > WAITING_FACTOR * needed else "")
        )
    return [*facts, "one rank does not show how much of it is waiting for other ranks"]


def _places(evidence: Evidence, work: I8) -> list[Place]:
    links, count = evidence.priced.links, evidence.steps.count
    names = [_name(evidence, index) for index in work.tolist()]
    result = []
    ranked = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    for name, number in ranked[:PLACES_SHOWN]:
        alike = work[[other == name for other in names]]
        first = int(links.op[alike[0]])
        owned = float(evidence.budget.owned_ns[alike].sum()) / count
        result.append(Place(op=name, source=evidence.source(first), count=number / count, ns=owned))
    return result


def _name(evidence: Evidence, index: int) -> str:
    """The name in the collective's record; without a record the kernel's name."""
    group = evidence.priced.groups[int(evidence.priced.group[index])]
    if group.call.collective is not None:
        return group.call.collective.name
    return evidence.events.name_of(int(evidence.priced.links.device[index]))
