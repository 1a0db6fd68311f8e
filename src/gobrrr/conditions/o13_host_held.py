"""The host is busy with something other than launching: the program's own Python, a library, or a wait.

The device needs the host for microseconds a launch. If it idles for longer, a function of the program keeps the host:
it builds tensors from lists, tokenizes text, opens images, copies objects, computes in Python, sleeps, or waits for a
file, a lock, a pipe or another process. Remedies for launching, such as a graph or a compiler, do not help then.

## How it is recognised

Each instant in which the device idles (on a CPU: no operation runs) lies in one Python frame. It counts in two cases:

- The frame, or one around it, is of a known kind, recognised by the function or the library that is called. On a CPU
  its computing time counts as well.
- The frame is of no known kind, is not torch's own, and the stretch is longer than 100 us. Of 41,254 stretches measured
  in programs without this fault, 98.7 % are shorter.

For the work of each step, and for frames of no known kind, the median step's time counts: a thread may wait for a
processor anywhere. Time is added up by the line of the program that makes the call. A line needs a tenth of the step to
be reported, or a fifth if it is of no known kind. Loading (D01), compiling (O05), allocating (O06), collecting (O07),
reporting (O12) and waiting for the device (O02) have conditions of their own.

## What it costs

    at stake (high) = W - replay without that host time, at most the idle time that it covers
    at stake (low)  = 0: how much of it the program can do without is not known

## What helps

It depends on what is called, and the finding says it for the line. A function of no known kind is reported with its
line and its share, without a remedy. A live run also says whether it is Python of the program itself, or compiled code
that a line calls and that has no frame of its own.

- Tensors from Python objects: one array first (`torch.from_numpy(np.stack(arrays))`), or build them once.
- Text, images, files: the workers of a DataLoader, or once before the loop.
- Waits for other threads and processes: request early, and use the answer a step later.
- Distributions: `torch.distributions.Distribution.set_default_validate_args(False)`.

## Sick

```python
frames = [np.zeros((4, 84, 84), np.float32) for _ in range(64)]
for _ in range(steps):
    x = torch.tensor(frames)  # 1.8 million numbers, one by one
    step(x)
```

## Healthy

```python
for _ in range(steps):
    x = torch.from_numpy(np.stack(frames))  # 64 copies of memory
    step(x)
```
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.findings.claims import NO_CALLS, Claim, Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.holding import Holder, claim_of, holders
from gobrrr.analysis.savings.effects import claimed
from gobrrr.conditions.common import MOST_PLACES, finding
from gobrrr.model.diagnosis import Finding, NotChecked, Place

CODE = "O13"
TITLE = "the host is held by other work than launching"
TITLE_OWN = "the program's own Python holds the host"
TITLE_WAITS = "the host waits, and not for the device"
TREATMENT = "free-host"


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Lines whose calls hold the host while the device idles."""
    if not evidence.profile.frames:
        return NotChecked(code=CODE, needs="needs Python frames: record with_stack=True, diagnose with --stacks")
    steps = evidence.steps.count
    found = holders(evidence)
    if not found:
        return None
    claim = claim_of(evidence, found)
    idle = claim.total / steps
    known = any(holder.kind is not None for holder in found)
    return finding(
        evidence,
        CODE,
        _title(found),
        where=[_place(evidence, holder) for holder in found[:MOST_PLACES]],
        at_stake=(0.0, min(_gone(evidence, claim), idle)),
        claim=claim,
        certainty="high",
        treatments=[TREATMENT] if known else [],
        facts=[*(_fact(evidence, holder) for holder in found[:MOST_PLACES]), *_unknown(found)],
    )


def _title(found: list[Holder]) -> str:
    """What most of it is, where that is known."""
    half = sum(holder.total for holder in found) / 2
    if sum(holder.total for holder in found if holder.kind is not None and holder.kind.waits) > half:
        return TITLE_WAITS
    return TITLE_OWN if sum(holder.total for holder in found if holder.own) > half else TITLE


def _gone(evidence: Evidence, claim: Claim) -> float:
    """What a step is shorter by, replayed without the host time that is claimed."""
    if not evidence.replayable:
        return claim.total / evidence.steps.count
    whole = Claim(claim.unit, claim.ns, claim.ns)
    nothing = Finding(
        code=CODE, title=TITLE, where=[], at_stake_ns=(0.0, 0.0), certainty="high", treatments=[], evidence=[]
    )
    without = claimed(evidence, Found(nothing, whole, NO_CALLS))(1.0)(evidence.graph)
    return max(float(evidence.wall_ns - evidence.length(without)), 0.0)


def _place(evidence: Evidence, holder: Holder) -> Place:
    steps = evidence.steps.count
    count = holder.count / steps if holder.count is not None else None
    return Place(
        op=holder.what, module=evidence.module(holder.row), source=holder.source, count=count, ns=holder.total / steps
    )


def _fact(evidence: Evidence, holder: Holder) -> str:
    ns = holder.total / evidence.steps.count
    unknown = (
        "is Python of the program itself" if holder.own else "holds the host; what it does, or waits for, is not known"
    )
    does = holder.kind.does if holder.kind is not None else unknown
    at = f" ({holder.source})" if holder.source else ""
    return f"{holder.what}{at} {does}: {units.duration(ns)} a step, {units.percent(ns / evidence.wall_ns)} of it"


def _unknown(found: list[Holder]) -> list[str]:
    """Why there is no remedy for a part of it."""
    if all(holder.kind is not None for holder in found):
        return []
    return ["no remedy is known for what has no kind: a profile of that function shows its lines"]
