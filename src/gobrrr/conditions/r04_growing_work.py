"""Work grows: each step, or each turn of a loop, does more than the one before.

A hidden state that is kept with its graph makes each backward pass go through all earlier batches. A loss that is
accumulated with its graph keeps the graph of every step. Lists that are stacked in each step, buffers that are read as
a whole, and hooks that each step registers again behave the same way. A step that was fast at the beginning takes
seconds after an hour, or memory runs out.

## How it is recognised

- Operations of one name whose number or tensor size increases by the same amount in each of at least three recorded
  steps. In a live run two later steps have to confirm it, and give the line.
- In a live run, between steps: the number of autograd nodes that can be reached from existing results, or of hooks on
  modules and tensors, increases by the same amount at each of four boundaries. The line is that of the result whose
  graph still exists when the next step has ended.
- In a live run, memory: tensors that a step made and that still exist when the next step has ended, if the recorded
  steps left as many more each. Reported if 1,000 more steps fill 2 % of the memory.
- Within a step: four or more backward passes, each through more operations than the one before, after forward passes
  that are all alike.

Not reported: lengths that vary, a schedule that alternates, a curriculum that has ended, the first step of an
optimizer, the last few results that a program keeps, and a list of numbers. Rows that a turn computes again are R03's,
a tensor that grows by concatenation is M10's.

A buffer that fills up to a maximum looks like one without a limit, so memory alone has medium certainty. A trace does
not show whether the growth continues, so it has low certainty.

## What it costs

    cost (high) = time of these calls * the share of them that was not there in the first step of the loop
                      + idle time of the device that launching them causes
    cost (low)  = the same for what was not there in the first recorded step

For turns within a step: the high end is what the later turns take beyond the first one's length. The low end is 0,
because the program may need all of it. A finding needs 2 % of the step now, or after 1,000 more steps. What only takes
memory costs no time yet.

## What helps

- A state: `hidden = hidden.detach()` between steps, and no `retain_graph=True`.
- A sum or a list of losses: `total += loss.detach()`, read once with `.item()` at the end.
- A list of outputs: reduce them to numbers at once (a sum, a count), or write them to a file from time to time.
- A list that is stacked: a tensor of the maximum size, filled in place; a running sum instead of all values.
- A buffer or a cache: a maximum size (`deque(maxlen=...)`), a sample of it, a window of the cache.
- Hooks: registered once before the loop, or `handle.remove()` at the end of the step.
- Turns: ask only for the gradients of the turn's own state.

## Sick

```python
for x in loader:
    y, hidden = rnn(x, hidden)
    loss(y).backward(retain_graph=True)
```

## Healthy

```python
for x in loader:
    y, hidden = rnn(x, hidden.detach())
    loss(y).backward()
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.growing import RunGrowth, grown
from gobrrr.analysis.detect.rising import Holding, RisingOperation
from gobrrr.analysis.findings.claims import NO_CALLS, NO_CLAIM, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import LEAST_STEP_SHARE, PLACES_SHOWN, short_op
from gobrrr.conditions.vanishing import Vanishing, vanishing
from gobrrr.model.diagnosis import Certainty, Finding, NotChecked, Place

CODE = "R04"
TITLE = "work that grows from step to step"
TITLE_TURNS = "backward passes that grow from turn to turn"
TITLE_MEMORY = "memory that fills from step to step"
TREATMENT = "let-go"
STEPS_AHEAD = 1_000
"""Steps that a forecast looks ahead; chosen, not measured."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Work that grows from step to step or turn to turn, and memory that is held."""
    growth = grown(evidence)
    if growth is None:
        return NotChecked(code=CODE, needs="needs three recorded steps that are marked: profiler.step() in the loop")
    gone, a_step = _vanishing(evidence, growth)
    wall = max(evidence.wall_ns, 1.0)
    low, high = gone.at_stake if gone is not None else (0.0, 0.0)
    high = min(high, evidence.wall_ns)
    worth = max(high, a_step * STEPS_AHEAD) >= LEAST_STEP_SHARE * wall or growth.kept
    if not worth and not _fills(evidence, growth):
        return None
    title = TITLE if growth.rising or growth.kept else TITLE_TURNS
    about = Finding(
        code=CODE,
        title=title if worth else TITLE_MEMORY,
        where=_places(evidence, growth)[:PLACES_SHOWN],
        at_stake_ns=(min(max(low, 0.0), high), high),
        certainty=_certainty(growth) if worth else "medium",
        treatments=[TREATMENT],
        evidence=[*_facts(evidence, growth), *_ahead(evidence, growth, a_step)],
    )
    return ClaimedFinding(about, gone.claim if gone is not None else NO_CLAIM, NO_CALLS)


def _fills(evidence: Evidence, growth: RunGrowth) -> bool:
    """Whether the memory that is kept will be a considerable part of the device's after `STEPS_AHEAD` steps."""
    memory = evidence.profile.memory
    if growth.filling is None or memory is None or memory.capacity_bytes is None:
        return False
    return growth.filling.rate * STEPS_AHEAD >= LEAST_STEP_SHARE * memory.capacity_bytes


def _vanishing(evidence: Evidence, growth: RunGrowth) -> tuple[Vanishing | None, float]:
    """(what the growth costs now, by how many ns each step is longer than the one before)."""
    parts = [(rising.calls, rising.low, rising.high, rising.a_step) for rising in growth.rising]
    if growth.turns is not None:
        none = np.zeros(len(growth.turns.calls))
        parts.append((growth.turns.calls, none, growth.turns.more, none))
    if not parts:
        return None, 0.0
    calls, low, high, a_step = (np.concatenate(column) for column in zip(*parts, strict=True))
    calls, first = np.unique(calls, return_index=True)
    ns = evidence.calls.ns[calls]
    now = vanishing(evidence, calls, ns * low[first], ns * high[first])
    if not evidence.device.asynchronous:  # the shortest operations have no device work, but take host time
        host = evidence.replayed.duration_ns
        steps = evidence.recorded_steps.count
        return now, sum(float(host[rising.rows].sum()) / steps / rising.mean * rising.rate for rising in growth.rising)
    more = vanishing(evidence, calls, ns * 0.0, ns * a_step[first])
    return now, more.device_ns + more.idle_ns


def _certainty(growth: RunGrowth) -> Certainty:
    if growth.kept or any(rising.seen for rising in growth.rising):
        return "high"
    return "medium" if growth.turns is not None else "low"


def _places(evidence: Evidence, growth: RunGrowth) -> list[Place]:
    count = evidence.steps.count
    places = [
        Place(
            op=rising.op,
            module=evidence.module(int(rising.rows[-1])),
            source=rising.source,
            count=len(rising.rows) / evidence.recorded_steps.count,
            ns=float(evidence.calls.ns[rising.calls].sum()) / count,
        )
        for rising in growth.rising
    ]
    if growth.turns is not None:
        ns = float(evidence.calls.ns[growth.turns.calls].sum()) / count
        places.append(Place(op=None, source=growth.turns.source, count=len(growth.turns.lengths), ns=ns))
    held = [Place(op=result.op, source=result.source) for result in growth.results]
    if growth.hooks is not None:
        held += [Place(op=None, source=source) for source in growth.hooked]
    sources = {place.source for place in places}
    return [*places, *(place for place in held if place.source not in sources)]


def _facts(evidence: Evidence, growth: RunGrowth) -> list[str]:
    facts = [_of_calls(rising) for rising in growth.rising[:PLACES_SHOWN]]
    if growth.nodes is not None:
        rate, now = units.things(growth.nodes.rate, "autograd node"), units.count(growth.nodes.now)
        held = f": held by the result of {_operations(growth)}" if growth.results else ""
        facts.append(f"graphs of earlier steps are kept: {rate} more after each step, now {now}{held}")
    elif growth.filling is not None:
        facts.append(f"results of earlier steps are kept: those of {_operations(growth)} outlive the next step")
        facts.append(_memory(evidence, growth.filling))
    if growth.hooks is not None:
        rate, now = units.things(growth.hooks.rate, "hook"), units.count(growth.hooks.now)
        facts.append(f"{rate} more on modules and tensors after each step, now {now}")
    if growth.turns is not None:
        lengths = growth.turns.lengths
        facts.append(
            f"{len(lengths)} backward passes in a step, after forward passes that are alike: "
            f"{units.things(lengths[0], 'operation')} in the first, {units.count(lengths[1])} in the second, "
            f"{units.count(lengths[-1])} in the last"
        )
    return facts


def _operations(growth: RunGrowth) -> str:
    """The operations whose results are kept, with their lines."""
    return ", ".join(
        dict.fromkeys(f"{short_op(result.op)} ({result.source})" for result in growth.results[:PLACES_SHOWN])
    )


def _of_calls(rising: RisingOperation) -> str:
    source = f" ({rising.source})" if rising.source else ""
    what = "call" if rising.counted else "element"
    ahead = units.count(rising.last + rising.rate * STEPS_AHEAD)
    return (
        f"{short_op(rising.op)}{source}: {units.things(rising.rate, what)} more in each step, "
        f"{units.count(rising.last)} in the last recorded one; after {STEPS_AHEAD:,} more steps {ahead}"
    )


def _ahead(evidence: Evidence, growth: RunGrowth, a_step: float) -> list[str]:
    facts = []
    if a_step > 0:
        now, then = units.duration(evidence.wall_ns), units.duration(evidence.wall_ns + a_step * STEPS_AHEAD)
        facts.append(
            f"each step takes {units.duration(a_step)} more than the one before: {now} now, {then} after "
            f"{STEPS_AHEAD:,} more steps at this rate"
        )
    if growth.bytes is not None and growth.filling is None and (growth.kept or growth.rising):
        facts.append(_memory(evidence, growth.bytes))
    drift = evidence.profile.times.drift if evidence.profile.times is not None else None
    if drift is not None and drift > 0 and growth.rising:
        facts.append(
            f"without the profiler the last third of the steps took {units.percent(drift)} more than the first"
        )
    return facts


def _memory(evidence: Evidence, held: Holding) -> str:
    rate, now = held.rate, held.now
    text = (
        f"tensors hold {units.bytes_(rate)} more after each step, {units.bytes_(now)} when the profile ended: "
        f"{units.bytes_(now + rate * STEPS_AHEAD)} after {STEPS_AHEAD:,} more"
    )
    memory = evidence.profile.memory
    if memory is None or memory.capacity_bytes is None:
        return text
    left = units.count(max(memory.capacity_bytes - now, 0.0) / rate)
    return f"{text}, and all of the {units.bytes_(float(memory.capacity_bytes))} after {left}"
