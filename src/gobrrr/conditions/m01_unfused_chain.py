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
from gobrrr.analysis.findings.claims import F8, ClaimedFinding, of_calls
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import KERNEL_GAP_NS, step_saving
from gobrrr.analysis.pricing.fusion import Chain
from gobrrr.conditions.common import PLACES_SHOWN, bytes_of, certainty_of, finding, short_op, signature, unable
from gobrrr.conditions.m02_attention import find_attention
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "M01"
TITLE = "unfused pointwise chain"

LEAST_HOST_SHARE = 0.9
"""If the wall saves less than this share of what the device saves, a fact names the host as the bottleneck; chosen."""


@dataclass(frozen=True)
class _Saving:
    """What fusing a chain saves, `low` to `high` ns; the chain's time and bytes, and the bytes that are saved."""

    low: float
    high: float
    ns: float
    bytes: float
    saved_bytes: float


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Chains of fusible calls outside attention, grouped by operations and shapes."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    attention = set(find_attention(evidence).calls.tolist())
    chains = [chain for whole in evidence.fusion.chains if (chain := whole.without_head()) is not None]
    chains = [chain for chain in chains if not attention & set(chain.calls) and not _joins(evidence, chain)]
    rereads = None if evidence.training else Rereads(evidence)
    fused = [(chain, saving) for chain in chains if (saving := _saving(evidence, chain, rereads)) is not None]
    if not fused:
        return None
    count = evidence.steps.count
    device = sum(saving.high for _, saving in fused) / count
    calls, call_low, call_high = _by_call(evidence, fused)
    gone = np.array([call for chain, _ in fused for call in chain.calls[1:]], dtype=np.int64)
    low, high = step_saving(evidence, calls, call_low, call_high, len(gone) / count)
    groups = _grouped(evidence, fused)
    facts = [_fact(evidence, group) for group in groups[:PLACES_SHOWN]]
    number = units.things(len(fused) / count, "chain")
    facts.append(
        f"fusing {number if len(fused) == count else f'all {number}'} a step shortens the device's work by "
        f"{units.duration_range(sum(saving.low for _, saving in fused) / count, device)}"
    )
    if high < LEAST_HOST_SHARE * device:
        facts.append("the host is the bottleneck for the rest: the device would only wait for it")
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, group) for group in groups[:PLACES_SHOWN]],
        at_stake=(low, high),
        claim=of_calls(calls, call_low, call_high),
        gone=gone,
        certainty=certainty_of(evidence, "medium"),
        treatments=["compile"],
        facts=facts,
    )


def _joins(evidence: Evidence, chain: Chain) -> bool:
    """Whether a chain is only concatenations: they have equal shapes but join different tensors (keys, then values)."""
    return all(evidence.group_of(call).call.name == "aten::cat" for call in chain.calls)


def _saving(evidence: Evidence, chain: Chain, rereads: Rereads | None) -> _Saving | None:
    """What fusing a chain saves; None if one of its calls has no floor. `rereads` is None in training."""
    calls = np.array(chain.calls)
    floor, ns = float(evidence.calls.floor_ns[calls].sum()), float(evidence.calls.ns[calls].sum())
    moved = bytes_of(evidence, chain.calls)
    if not floor > 0 or not moved:
        return None
    rate = moved / floor  # bytes a nanosecond at the roofs of its calls
    saved = min(chain.spared_high, moved)
    most = max(ns - (moved - saved) / rate, 0.0)
    between = KERNEL_GAP_NS if evidence.device.asynchronous else 0.0  # a CPU spends the time between on dispatch (O01)
    high = min(ns * saved / moved + (len(calls) - 1) * between, most)
    low = min(chain.spared_low / rate, high)
    if rereads is not None:
        written = evidence.group_of(chain.calls[-1]).work.bytes_written or 0.0
        fused = max(moved - saved - rereads.inside(chain), 2 * written)
        # on a CPU the chain's arithmetic may be the bottleneck, and it stays: only the bytes at the roof are sure there
        sure = not rereads.after(chain) and evidence.device.bytes_alone
        low, high = high if sure else low, max(high, ns - fused / rate)
    return _Saving(low, high, ns, moved, saved)


def _by_call(evidence: Evidence, fused: list[tuple[Chain, _Saving]]) -> tuple[I8, F8, F8]:
    """(calls, low, high): each chain's saving, distributed over its calls by their times."""
    calls: list[int] = []
    low: list[float] = []
    high: list[float] = []
    for chain, saving in fused:
        share = evidence.calls.ns[np.array(chain.calls)] / max(saving.ns, 1.0)
        calls += chain.calls
        low += (share * saving.low).tolist()
        high += (share * saving.high).tolist()
    return np.array(calls, dtype=np.int64), np.array(low), np.array(high)


def _grouped(evidence: Evidence, fused: list[tuple[Chain, _Saving]]) -> list[list[tuple[Chain, _Saving]]]:
    """Chains with the same operations and shapes together, largest saving first."""
    groups: dict[tuple[object, ...], list[tuple[Chain, _Saving]]] = defaultdict(list)
    for chain, saving in fused:
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
    """The operations of a chain: "mul, add, sigmoid"; those in the middle of a long one are only counted."""
    names = [short_op(evidence.group_of(call).call.name or "kernel") for call in chain.calls]
    if len(names) > most:
        names = [*names[: most - 2], f"{len(names) - most + 1} more", names[-1]]
    return ", ".join(names)


def _fact(evidence: Evidence, group: list[tuple[Chain, _Saving]]) -> str:
    chain, saving = group[0]
    return (
        f"{_words(evidence, chain)}: {units.a_step(len(group) / evidence.steps.count)}, "
        f"{units.duration(saving.ns)} each for {units.bytes_(saving.bytes)}, of which one kernel would save "
        f"{units.bytes_(chain.spared_low)} to {units.bytes_(saving.saved_bytes)}"
    )
