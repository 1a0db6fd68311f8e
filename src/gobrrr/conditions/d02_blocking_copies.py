"""Copies between host and device that block: they use pageable memory and reach part of the link's bandwidth.

The device can only read from pinned memory. From pageable memory the driver copies through a buffer of its own while
the host waits: no overlap, and often half the bandwidth or less. To the host, a copy into a new CPU tensor blocks even
with `non_blocking=True`.

## How it is recognised

Copies of at least 1 MB whose event says Pageable and that no kernel overlaps. Smaller ones are scalars and sizes, whose
cost is the wait (O02).

## What it costs

    cost (high) = the time of the copies that nothing overlaps
    cost (low)  = that - their bytes at the host link's bandwidth; 0 where that bandwidth is not known

## What helps

- `DataLoader(pin_memory=True)` and `.to("cuda", non_blocking=True)`; prefetch one batch on a separate stream.
- For results: a pinned buffer allocated once, `copy_(..., non_blocking=True)` and an event.

`non_blocking=True` without pinned memory changes nothing, and pinning memory inside the step costs another copy.

## Sick

```python
images = images.to("cuda")  # pageable
```

## Healthy

```python
loader = DataLoader(dataset, batch_size=128, num_workers=8, pin_memory=True)
images = images.to("cuda", non_blocking=True)
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.events.ratios import rate
from gobrrr.analysis.findings.claims import ClaimedFinding, of_work
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.inputs import pageable_copies
from gobrrr.conditions.common import finding, place_of_row
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "D02"
TITLE = "blocking copies from or to pageable memory"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Large pageable copies that nothing overlaps."""
    copies = pageable_copies(evidence)
    owned = evidence.budget.owned_ns[copies]
    copies = copies[owned > 0]
    if not len(copies):
        return None
    count, rows = evidence.steps.count, evidence.priced.links.device[copies]
    exposed = float(evidence.budget.owned_ns[copies].sum()) / count
    length = float(evidence.events.duration_ns[rows].sum()) / count
    moved = float(evidence.events.bytes[rows].sum()) / count
    link = evidence.machine.host_bytes_per_s if evidence.machine else None
    pinned = moved / link.value * 1e9 if link else None
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_places(evidence, copies),
        at_stake=(max(exposed - pinned, 0.0) if pinned is not None else 0.0, exposed),
        claim=of_work(evidence, copies),
        certainty="high",
        treatments=["prefetch-pinned"],
        facts=[
            f"{units.a_step(len(copies) / count, 'pageable copy of 1 MB or more')}: {units.bytes_(moved)} in "
            f"{units.duration(length)}, {units.rate(rate(moved, length))}",
            f"nothing overlaps {units.duration(exposed)} of that",
            f"at the host link's {units.rate(link.value)} they would take {units.duration(pinned)}"
            if link
            else "the bandwidth of the host link is not known",
        ],
    )


def _places(evidence: Evidence, copies: I8) -> list[Place]:
    """The heaviest copy of each direction, with the operation around it."""
    events, links = evidence.events, evidence.priced.links
    owned, steps = evidence.budget.owned_ns, evidence.steps.count
    heaviest = []
    for name in np.unique(events.name[links.device[copies]]).tolist():
        alike = copies[events.name[links.device[copies]] == name]
        op = int(links.op[alike[np.argmax(owned[alike])]])
        ns = float(owned[alike].sum()) / steps
        heaviest.append(place_of_row(evidence, op, len(alike) / steps, ns, None if op >= 0 else events.names[name]))
    return sorted(heaviest, key=lambda place: -(place.ns or 0.0))
