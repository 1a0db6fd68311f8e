"""The host waits for the device in the middle of a step and the queue runs dry.

`loss.item()`, `if tensor:`, `x[mask]`, `nonzero`, `tensor.cpu()`, a copy into pageable memory: each needs a value
that the device has not computed yet. The host stops until the device has caught up; then the device stops until the
host has dispatched again.

## How it is recognised

Calls that block the host (`cudaStreamSynchronize`, `cudaDeviceSynchronize`, copies from the device to pageable
memory) inside the step, by the operation around them. A wait after which no work of the same step follows is the
step's own end, often put there by a benchmark or by the profiler: it is no finding, unless an operation such as
`aten::item` caused it and another step follows. Where Python frames were recorded and read, the source line is named.

## What it costs

Never the time for which the host was blocked: most of that is work that the device has to do anyway. The step is
replayed without these waits, all else equal:

    cost (low)  = W - replay without the waits, less W - its low end
    cost (high) = the larger of W - replay and the `sync_drain` line of the budget

`sync_drain` is the time in which the device had nothing to do because of a wait. It is an upper bound: what follows
a wait may be launch-bound in any case (O01), and then removing the wait only uncovers that. Nothing is reported
where the replay gains less than 1 % of the step, or less than 30 us.

## What helps

- Keep the value on the device: accumulate losses there and read them every N steps; `torch.where` and `clamp` for `if`.
- `masked_fill`, `nonzero_static`, `repeat_interleave(output_size=...)` for shapes that depend on data.
- For a loop over experts, sort the tokens once and use a grouped matmul: no sync and no loop.
- Pinned memory and `non_blocking=True` for copies back, with an event.

It gives nothing where host or device is the bound on both sides of the wait: reading the loss each step was blamed
for 85 % of a step and cost 4 %.

## Sick

```python
for e in range(experts):
    rows, cols = torch.where(idx == e)  # the host must know how many
    if rows.numel():
        out.index_add_(0, rows, expert[e](x[rows]))
```

## Healthy

```python
order = idx.flatten().argsort()
offs = torch.bincount(idx.flatten(), minlength=experts).cumsum(0).to(torch.int32)
h = torch.nn.functional.grouped_mm(x[order // k], w, offs=offs)
```
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gobrrr import units
from gobrrr.analysis.claims import Claim, Found, of_gaps
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.idle import CAUSES, DRAINING
from gobrrr.analysis.path import path_of
from gobrrr.analysis.waits import cause_of, expert_loop, inner_waits
from gobrrr.conditions.common import MOST_PLACES, finding
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O02"
TITLE = "host waits for the device"

_Asker = tuple[str, str | None]

LEAST_GAIN_SHARE = 0.01
"""A replay that gains less of the step says that the waits cost nothing."""

LEAST_GAIN_NS = 30_000
"""What the replay can't tell from nothing: the host takes 10 to 30 us to notice that a wait is over."""


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Waits inside the step, worth what the replay without them gains."""
    waits = inner_waits(evidence)
    if not len(waits):
        return None
    wall = evidence.wall_ns
    gain = wall - evidence.without_waits(waits)
    if gain < max(LEAST_GAIN_SHARE * wall, LEAST_GAIN_NS):
        return None
    drained = evidence.line("overhead", DRAINING)
    asked = _asked(evidence, waits)
    places = _places(evidence, asked)
    count = sum(len(rows) for rows in asked.values()) / evidence.recorded_steps.count
    lines = sorted({one.source for one in places if one.source})
    names = ", ".join(dict.fromkeys(str(one.op) for one in places))
    facts = [
        f"{units.count(count)} waits a step inside the step, from {names}"
        + (f", in {', '.join(lines)}" if lines else ""),
        f"replayed without them a step takes {units.duration(wall - gain)} instead of {units.duration(wall)}",
        f"the device had nothing to do for {units.duration(drained)} a step because of waits",
        f"the host issues a step in {units.duration(path_of(evidence).host)}: it is the next bound",
    ]
    looped = expert_loop(evidence, waits)
    if looped:
        facts.append(
            f"between {units.count(looped)} of the waits a step there are matmuls: a loop over experts (grouped-matmul)"
        )
    return finding(
        evidence,
        CODE,
        TITLE,
        where=places,
        at_stake=(gain - path_of(evidence).spread.down, max(gain, drained)),
        claim=_claim(evidence, max(gain, drained)),
        certainty="high" if gain >= 0.5 * drained else "medium",
        treatments=["remove-sync"],
        facts=facts,
    )


def _claim(evidence: Evidence, ns: float) -> Claim:
    """The draining of each idle stretch; the replay may gain more than that, which is then taken from all idle time."""
    gaps = evidence.budget.gaps
    every, drained = np.arange(len(gaps)), gaps.of(DRAINING).astype(np.float64)
    rest = (gaps.stop - gaps.start) - drained
    more = max(ns * evidence.steps.count - float(drained.sum()), 0.0)
    share = min(more / float(rest.sum()), 1.0) if rest.sum() > 0 else 0.0
    others = tuple(cause for cause in CAUSES if cause != DRAINING)
    own = of_gaps(evidence, every, drained, causes=(DRAINING,))
    return own + of_gaps(evidence, every, share * rest, causes=others)


def _asked(evidence: Evidence, waits: I8) -> dict[_Asker, list[int]]:
    """The operations that asked for the waits, by name and source line.

    An `item` waits twice (copy, synchronize) and counts once.
    """
    rows: dict[_Asker, set[int]] = defaultdict(set)
    for wait in waits.tolist():
        row = cause_of(evidence, wait)
        row = wait if row is None else row
        rows[evidence.events.name_of(row), evidence.source(row)].add(row)
    return {asker: sorted(found) for asker, found in rows.items()}


def _places(evidence: Evidence, asked: dict[_Asker, list[int]]) -> list[Place]:
    ranked = sorted(asked, key=lambda asker: (-len(asked[asker]), asker[0], asker[1] or ""))[:MOST_PLACES]
    return [
        Place(
            op=name,
            module=evidence.module(asked[name, source][0]),
            source=source,
            count=len(asked[name, source]) / evidence.recorded_steps.count,
        )
        for name, source in ranked
    ]
