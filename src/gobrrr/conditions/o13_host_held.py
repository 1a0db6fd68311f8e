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
from gobrrr.analysis.findings.claims import NO_CALLS, ClaimedFinding, TimeClaim
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.holding import Holder, claim_of, holders
from gobrrr.analysis.savings.effects import claimed
from gobrrr.conditions.common import PLACES_SHOWN, finding, needs_frames
from gobrrr.model.diagnosis import Finding, NotChecked, Place

CODE = "O13"
TITLE = "host time in work other than launching"
TITLE_OWN = "host time in the program's own Python"
TITLE_WAITS = "host waits for something other than the device"
TREATMENT = "free-host"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Lines whose calls keep the host busy or waiting while the device idles."""
    if not evidence.profile.frames:
        return needs_frames(CODE)
    lines = holders(evidence)
    if not lines:
        return None
    claim = claim_of(evidence, lines)
    idle = claim.total / evidence.steps.count
    known = any(holder.kind is not None for holder in lines)
    return finding(
        evidence,
        CODE,
        _title(lines),
        where=[_place(evidence, holder) for holder in lines[:PLACES_SHOWN]],
        at_stake=(0.0, min(_gone(evidence, claim), idle)),
        claim=claim,
        certainty="high",
        treatments=[TREATMENT] if known else [],
        facts=[*(_fact(evidence, holder) for holder in lines[:PLACES_SHOWN]), *_unknown(lines)],
    )


def _title(lines: list[Holder]) -> str:
    """The title for what takes more than half of the time, if that is known."""
    half = sum(holder.total for holder in lines) / 2
    if sum(holder.total for holder in lines if holder.kind is not None and holder.kind.waits) > half:
        return TITLE_WAITS
    return TITLE_OWN if sum(holder.total for holder in lines if holder.own) > half else TITLE


def _gone(evidence: Evidence, claim: TimeClaim) -> float:
    """By how much a step gets shorter, replayed without the host time that is claimed."""
    if not evidence.replayable:
        return claim.total / evidence.steps.count
    whole = TimeClaim(claim.unit, claim.ns, claim.ns)
    nothing = Finding(
        code=CODE, title=TITLE, where=[], at_stake_ns=(0.0, 0.0), certainty="high", treatments=[], evidence=[]
    )
    without = claimed(evidence, ClaimedFinding(nothing, whole, NO_CALLS))(1.0)(evidence.graph)
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
        "is Python of the program itself" if holder.own else "keeps the host busy or waiting; what it does is not known"
    )
    does = holder.kind.does if holder.kind is not None else unknown
    source = f" ({holder.source})" if holder.source else ""
    return f"{holder.what}{source} {does}: {units.duration(ns)} a step, {units.percent(ns / evidence.wall_ns)} of it"


def _unknown(lines: list[Holder]) -> list[str]:
    """Why a part of it has no remedy."""
    if all(holder.kind is not None for holder in lines):
        return []
    return ["no remedy is known for a function of no known kind: a line profiler shows where its time goes"]
