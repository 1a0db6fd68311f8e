"""The program reads values from the device: the host waits, the queue runs dry, and each read costs host time.

`loss.item()`, `if tensor:`, `x[mask]`, `nonzero`, `tensor.cpu()`, a copy into pageable memory: each needs a value that
the device has not computed yet. The host stops until the device has caught up; then the device stops until the host has
dispatched again. Where the device is idle anyway, a read still costs the host time of the operation, the copy and the
wait. Often the value is computed only to be read: one small operation for each of many tensors.

## How it is recognised

Calls inside the step that block the host (`cudaStreamSynchronize`, `cudaDeviceSynchronize`, copies from the device to
pageable memory), by the operation around them. A wait with no later work in the same step is the step's own end, often
put there by a benchmark or by the profiler: it is no finding, unless an operation such as `aten::item` caused it and
another step follows. Where Python frames were recorded, the source line is named.

A live run also recognises loops in which most turns (iterations) compute little and end in a read, such as the norm of
each parameter's gradient, and whose turns do not depend on each other. That is one finding with the loop's line, on a
CPU as well. A single read in a step costs a CPU only its dispatch, and is no finding there.

## What it costs

Not the time for which the host was blocked: most of that is work that the device has to do anyway. The step is replayed
without these waits, all else equal:

    cost (low)  = W - replay without the waits, less W - its low end
    cost (high) = the larger of W - replay without the waits and without the reads' own operations on the host, and
                  the `sync_drain` line of the budget

W is the step time, estimated with an interval. `sync_drain` is the time in which the device had nothing to do because
of a wait. It is an upper bound: what follows a wait may be launch-bound in any case (O01), and then removing the wait
only exposes that. Nothing is reported where the replay gains less than 1 % of the step, or less than 30 us.

For a loop of reads: the high end is the idle time of the device (on a CPU the step's time) that launching and Python
take in the loop, the low end half of it, because one call for all tensors is launched as well.

## What helps

- Keep the value on the device: accumulate losses there and read them every N steps; `torch.where` and `clamp` for `if`.
- One call for all tensors and one read: `torch._foreach_norm`, `torch.stack(...).tolist()`.
- `masked_fill`, `nonzero_static`, `repeat_interleave(output_size=...)` for shapes that depend on data.
- For a loop over experts, sort the tokens once and use a grouped matmul: no sync and no loop.
- Pinned memory and `non_blocking=True` for copies back, with an event.

It gives nothing where the host or the device is the bottleneck both before and after the wait. Reading the loss each
step was blamed for 85 % of a step and cost 4 %.

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
from gobrrr.analysis.budget.idle import DRAINING, HOST_WORK, IDLE_CAUSES, LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.findings.claims import ClaimedFinding, TimeClaim, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.host_loops import CostlyLoop, batchable, busiest_line, inside_of, waits_within
from gobrrr.analysis.host.waits import cause_of, expert_loop, inner_waits
from gobrrr.analysis.savings.regions import unread
from gobrrr.conditions.common import PLACES_SHOWN, by_line, finding, place_of_row, within_loops
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O02"
TITLE = "host waits for the device"
TITLE_LOOP = "values read one by one in a loop"

READ = "aten::item"
"""The operation that a loop of reads is shown with."""

LOOP_SHARE = 0.1
"""A loop with at least this share of the step has high certainty; chosen, not measured."""

_Asker = tuple[str, str | None]

LEAST_GAIN_SHARE = 0.01
"""If the replay gains a smaller share of the step, the waits cost nothing; chosen, not measured."""

LEAST_GAIN_NS = 30_000
"""The replay's resolution: the host takes 10 to 30 us to notice that a wait is over."""

IN_LOOPS = (LAUNCHING, PYTHON_CAUSE, DRAINING)
"""The causes of idle time that count within a loop of reads."""

READS_KEPT = 0.5
"""Share of a loop's idle time that may stay: one call for all tensors goes through them on the host too; chosen."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Waits inside the step, by what the replay without them gains; and loops that read value by value."""
    waits = inner_waits(evidence)
    reading = [host_loop for host_loop in evidence.host_loops if host_loop.for_reading]
    if reading:
        return _loops(evidence, reading, waits)
    if not len(waits):
        return None
    wall = evidence.wall_ns
    least = wall - evidence.without_waits(waits)
    gain = max(wall - _unread(evidence, waits), least)
    if gain < max(LEAST_GAIN_SHARE * wall, LEAST_GAIN_NS):
        return None
    drained, path = evidence.line("overhead", DRAINING), path_of(evidence)
    asked = _asked(evidence, waits)
    places = _places(evidence, asked)
    count = sum(len(rows) for rows in asked.values()) / evidence.recorded_steps.count
    lines = sorted({place.source for place in places if place.source})
    names = ", ".join(dict.fromkeys(str(place.op) for place in places))
    facts = [
        f"the host waits for the device: {units.a_step(count, 'wait')}, in {names}"
        + (f", at {', '.join(lines)}" if lines else ""),
        f"the device had nothing to do for {units.duration(drained)} a step because of waits",
        f"without the waits {'the host' if path.host > path.busy else 'the device'} is the next bottleneck",
    ]
    looped = expert_loop(evidence, waits)
    if looped:
        facts.append(
            f"matmuls lie between {units.count(looped)} of a step's waits: a loop over experts (see grouped-matmul)"
        )
    return finding(
        evidence,
        CODE,
        TITLE,
        where=places,
        at_stake=(least - path.spread.down, max(gain, drained)),
        claim=_claim(evidence, max(gain, drained)),
        certainty="high" if gain >= 0.5 * drained else "medium",
        treatments=[*(["batched-loop"] if _mostly_in_loops(evidence, waits) else []), "remove-sync"],
        facts=facts,
    )


def _mostly_in_loops(evidence: Evidence, waits: I8) -> bool:
    """Whether most of the waits are in loops whose turns can be batched."""
    return 2 * len(waits_within(evidence, waits, batchable(evidence))) > len(waits)


def _unread(evidence: Evidence, waits: I8) -> float:
    """Wall time of one step, replayed without the waits and without what the host does to read a value."""
    graph = unread(evidence, waits)(1.0)(evidence.graph)
    return min(evidence.length(graph), evidence.wall_ns)


def _loops(evidence: Evidence, loops: list[CostlyLoop], waits: I8) -> ClaimedFinding | None:
    """The finding about loops whose turns compute the values that are read at their ends."""
    count, path = evidence.steps.count, path_of(evidence)
    gaps, ns = within_loops(evidence, loops, *IN_LOOPS)
    calls = (
        np.flatnonzero(inside_of(evidence, loops)[evidence.calls.first])
        if not evidence.device.asynchronous
        else np.empty(0, dtype=np.int64)
    )
    above = np.maximum(np.nan_to_num(evidence.calls.ns[calls] - evidence.calls.floor_ns[calls]), 0.0)
    idle = float(ns.sum()) / count
    low, high = path.host_saving(READS_KEPT * idle, idle)
    lines = by_line(loops)
    facts = [_reading(evidence, line, loops) for line in lines]
    if len(waits):
        per_step = sum(len(rows) for rows in _asked(evidence, waits).values()) / evidence.recorded_steps.count
        facts.append(f"{units.a_step(per_step, 'wait')} for the device in all")
    causes = IN_LOOPS if evidence.device.asynchronous else (*IN_LOOPS, HOST_WORK)
    return finding(
        evidence,
        CODE,
        TITLE_LOOP,
        where=_reading_places(evidence, lines, loops),
        at_stake=(low, high + float(above.sum()) / count),
        claim=of_gaps(evidence, gaps, ns, READS_KEPT * ns, causes=causes)
        + of_calls(calls, np.zeros(len(calls)), above),
        certainty="high" if idle >= LOOP_SHARE * evidence.wall_ns else "medium",
        treatments=["read-once", *(["remove-sync"] if len(waits) else [])],
        facts=[*facts, f"{evidence.device.idles_for} {units.duration(idle)} a step within the loop"],
    )


def _reading_places(evidence: Evidence, lines: list[CostlyLoop], loops: list[CostlyLoop]) -> list[Place]:
    """The line of each loop; after the first, the line in it with most of its operations."""
    count = evidence.recorded_steps.count
    places = [
        Place(
            op=READ,
            module=evidence.module(line.loop.row),
            source=line.loop.source,
            count=sum(loop.reads for loop in loops if loop.loop.source == line.loop.source) / count,
        )
        for line in lines
    ]
    inner = busiest_line(evidence, lines[0])
    return places if inner is None else [places[0], inner, *places[1:]]


def _reading(evidence: Evidence, line: CostlyLoop, loops: list[CostlyLoop]) -> str:
    same = [loop for loop in loops if loop.loop.source == line.loop.source]
    count = evidence.recorded_steps.count
    turns, reads = sum(loop.turns for loop in same) / count, sum(loop.reads for loop in same) / count
    return (
        f"{line.loop.source}: {units.a_step(turns, 'turn')}, {units.things(reads, 'value')} read one by one; "
        f"{units.things(line.computing, 'operation')} a turn to compute them, and the turns are independent"
    )


def _claim(evidence: Evidence, ns: float) -> TimeClaim:
    """The draining in each idle stretch; if the replay gains more, the rest is claimed from all idle time."""
    gaps = evidence.budget.gaps
    every, drained = np.arange(len(gaps)), gaps.of(DRAINING).astype(np.float64)
    rest = (gaps.stop - gaps.start) - drained
    more = max(ns * evidence.steps.count - float(drained.sum()), 0.0)
    share = min(more / float(rest.sum()), 1.0) if rest.sum() > 0 else 0.0
    others = tuple(cause for cause in IDLE_CAUSES if cause != DRAINING)
    draining = of_gaps(evidence, every, drained, causes=(DRAINING,))
    return draining + of_gaps(evidence, every, share * rest, causes=others)


def _asked(evidence: Evidence, waits: I8) -> dict[_Asker, list[int]]:
    """The operations that caused the waits, by name and source line.

    An `item` waits twice (copy, synchronize) and counts once.
    """
    rows: dict[_Asker, set[int]] = defaultdict(set)
    for wait in waits.tolist():
        row = cause_of(evidence, wait)
        row = wait if row is None else row
        rows[evidence.events.name_of(row), evidence.source(row)].add(row)
    return {asker: sorted(of_asker) for asker, of_asker in rows.items()}


def _places(evidence: Evidence, asked: dict[_Asker, list[int]]) -> list[Place]:
    ranked = sorted(asked, key=lambda asker: (-len(asked[asker]), asker[0], asker[1] or ""))[:PLACES_SHOWN]
    count = evidence.recorded_steps.count
    return [place_of_row(evidence, asked[asker][0], len(asked[asker]) / count) for asker in ranked]
