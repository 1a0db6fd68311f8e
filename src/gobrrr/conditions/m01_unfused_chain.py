"""A chain of pointwise operations, each of which reads from memory what the one before has just written.

A pointwise operation does a few FLOPs an element and moves the whole tensor through memory. In eager mode each is a
kernel of its own, so a chain of n costs about n times the memory traffic of one fused kernel. Norms, softmax, dtype
conversions and copies count as well. A hand-written RMSNorm or an AdaLN modulation is such a chain.

## How it is recognised

Consecutive calls on one stream that can all be fused, where each has an argument with exactly the shape that its
predecessor wrote. A trace does not identify tensors, so shape and order are used instead. Chains with the same
operations and shapes are one place with a count. Calls on attention scores are M02's.

## What it costs

A chain takes time t and moves b bytes at the rate r of its roof. Fusing saves s_low bytes if every intermediate is
still written (a backward pass needs it), and s_high if none is:

    cost (low)  = sum of s_low / r
    cost (high) = sum of t * s_high / b, and 1 us for each kernel less

t * s / b assumes that the fused kernel reaches the same share of the bandwidth as the chain does now. A chain never
saves more than its time minus its fused floor, t - (b - s_high) / r.

In inference an intermediate is only written if a later call reads it again. The high end is then the limit above,
t - (b - s_high) / r: the fused kernel may reach the roof, and an argument that a call reads besides its predecessor's
output in the same shape (`sigmoid(y) * y`) may already be on the chip. The low end is then the formula for the high
end, unless a later call takes more tensors of the chain's shape than were written since (a residual).

Both are capped at W - host (step time minus host time): only time in which the step waits for the device can be saved,
and a launch-bound step gains nothing from less traffic. Where the device is busy for 80 % of the step or more, the
launches that go away shorten the host time as well. On a CPU the low end is always the bytes at the roof: the chain's
arithmetic may be the bottleneck, and fusing does not shorten that.

## What helps

- `torch.compile` on the model or on the block that repeats.
- A fused operation where there is one: `F.rms_norm`, `F.layer_norm`, `F.gelu`, `F.scaled_dot_product_attention`.

It gives nothing on matmul-bound steps (a compiled Llama-8B at 8,192 tokens ran at 0.94 of eager's speed), and shortens
only device time, which does not matter in a launch-bound step.

## Sick

```python
y = x * w + b
y = torch.sigmoid(y) * y
y = torch.clamp(y * 0.5 + 0.1, -3, 3)
```

## Healthy

```python
@torch.compile
def activation(x, w, b):
    y = x * w + b
    y = torch.sigmoid(y) * y
    return torch.clamp(y * 0.5 + 0.1, -3, 3)
```
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.rereads import Rereads
from gobrrr.analysis.findings.claims import F8, Found, of_calls
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import KERNEL_GAP_NS, step_saving
from gobrrr.analysis.pricing.fusion import Chain
from gobrrr.conditions.common import MOST_PLACES, certainty_of, finding, short_op, signature, unable
from gobrrr.conditions.m02_attention import find_attention
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "M01"
TITLE = "unfused pointwise chain"

LEAST_HOST_SHARE = 0.9
"""Below this share of the device's possible saving on the wall, the host is named as what hides the rest."""


@dataclass(frozen=True)
class _Saving:
    """What fusing a chain spares, in ns, and the numbers behind it."""

    low: float
    high: float
    ns: float
    bytes: float
    spared: float


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Chains of fusible calls outside attention, grouped by what they do."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    attention = set(find_attention(evidence).calls.tolist())
    chains = [chain for one in evidence.fusion.chains if (chain := one.without_head()) is not None]
    chains = [chain for chain in chains if not attention & set(chain.calls) and not _joins(evidence, chain)]
    rereads = None if evidence.training else Rereads(evidence)
    found = [(chain, saving) for chain in chains if (saving := _saving(evidence, chain, rereads)) is not None]
    if not found:
        return None
    count = evidence.steps.count
    device = sum(saving.high for _, saving in found) / count
    calls, each_low, each_high = _by_call(evidence, found)
    gone = sum(len(chain.calls) - 1 for chain, _ in found) / count
    low, high = step_saving(evidence, calls, each_low, each_high, gone)
    groups = _grouped(evidence, found)
    facts = [_fact(evidence, group) for group in groups[:MOST_PLACES]]
    told = units.things(len(found) / count, "chain")
    facts.append(
        f"fusing {told if len(found) == count else f'all {told}'} a step shortens the device's work by "
        f"{units.duration_range(sum(saving.low for _, saving in found) / count, device)}"
    )
    if high < LEAST_HOST_SHARE * device:
        facts.append("the host is the bound for the rest: a shorter device only waits for it")
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, group) for group in groups[:MOST_PLACES]],
        at_stake=(low, high),
        claim=of_calls(calls, each_low, each_high),
        gone=np.array([call for chain, _ in found for call in chain.calls[1:]], dtype=np.int64),
        certainty=certainty_of(evidence, "medium"),
        treatments=["compile"],
        facts=facts,
    )


def _joins(evidence: Evidence, chain: Chain) -> bool:
    """Concatenations one after another have equal shapes and join different tensors: keys, then values."""
    return all(evidence.group_of(call).call.name == "aten::cat" for call in chain.calls)


def _saving(evidence: Evidence, chain: Chain, rereads: Rereads | None) -> _Saving | None:
    """What fusing a chain spares; None where a call of it has no floor. `rereads` is None in training."""
    calls = np.array(chain.calls)
    floor, ns = float(evidence.calls.floor_ns[calls].sum()), float(evidence.calls.ns[calls].sum())
    moved = sum(evidence.group_of(call).work.bytes or 0.0 for call in chain.calls)
    if not floor > 0 or not moved:
        return None
    rate = moved / floor  # bytes a nanosecond at the roofs of its calls
    spared = min(chain.spared_high, moved)
    most = max(ns - (moved - spared) / rate, 0.0)
    between = KERNEL_GAP_NS if evidence.device.asynchronous else 0.0  # on a CPU what lies between is dispatch (O01)
    high = min(ns * spared / moved + (len(calls) - 1) * between, most)
    low = min(chain.spared_low / rate, high)
    if rereads is not None:
        written = evidence.group_of(chain.calls[-1]).work.bytes_written or 0.0
        fused = max(moved - spared - rereads.inside(chain), 2 * written)
        # a processor may be held up by the chain's arithmetic, which stays: only the bytes at the roof are sure there
        sure = not rereads.after(chain) and evidence.device.bytes_alone
        low, high = high if sure else low, max(high, ns - fused / rate)
    return _Saving(low, high, ns, moved, spared)


def _by_call(evidence: Evidence, found: list[tuple[Chain, _Saving]]) -> tuple[I8, F8, F8]:
    """(calls, low, high): each chain's saving, spread over its calls by their times."""
    calls: list[int] = []
    low: list[float] = []
    high: list[float] = []
    for chain, saving in found:
        share = evidence.calls.ns[np.array(chain.calls)] / max(saving.ns, 1.0)
        calls += chain.calls
        low += (share * saving.low).tolist()
        high += (share * saving.high).tolist()
    return np.array(calls, dtype=np.int64), np.array(low), np.array(high)


def _grouped(evidence: Evidence, found: list[tuple[Chain, _Saving]]) -> list[list[tuple[Chain, _Saving]]]:
    """Chains with the same operations and shapes together, most to spare first."""
    groups: dict[tuple[object, ...], list[tuple[Chain, _Saving]]] = defaultdict(list)
    for chain, saving in found:
        groups[tuple(signature(evidence.group_of(call)) for call in chain.calls)].append((chain, saving))
    return sorted(groups.values(), key=lambda group: -sum(saving.high for _, saving in group))


def _place(evidence: Evidence, group: list[tuple[Chain, _Saving]]) -> Place:
    chain = group[0][0]
    place = evidence.place(np.array(chain.calls))
    count = evidence.steps.count
    return Place(
        op=_words(evidence, chain),
        module=place.module,
        source=place.source,
        shapes=place.shapes,
        count=len(group) / count,
        ns=sum(saving.ns for _, saving in group) / count,
    )


def _words(evidence: Evidence, chain: Chain, most: int = 8) -> str:
    """The operations of a chain: "mul, add, sigmoid"; the middle of a long one is counted only."""
    names = [short_op(evidence.group_of(call).call.name or "kernel") for call in chain.calls]
    if len(names) > most:
        names = [*names[: most - 2], f"{len(names) - most + 1} more", names[-1]]
    return ", ".join(names)


def _fact(evidence: Evidence, group: list[tuple[Chain, _Saving]]) -> str:
    chain, saving = group[0]
    return (
        f"{_words(evidence, chain)}: {units.a_step(len(group) / evidence.steps.count)}, "
        f"{units.duration(saving.ns)} each for {units.bytes_(saving.bytes)}, of which one kernel would spare "
        f"{units.bytes_(chain.spared_low)} to {units.bytes_(saving.spared)}"
    )
