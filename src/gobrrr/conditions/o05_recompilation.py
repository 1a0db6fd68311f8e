"""Compilation delays the step: a new graph is compiled, or a kernel is generated or loaded for the first time.

`torch.compile` compiles again when a guard fails: another shape, another Python number, a module's attribute that
changed. Each time takes seconds. After a limit (8) the function runs eagerly from then on.

## How it is recognised

Idle time of the device while events of the compiler run within the analysed steps (dynamo, inductor, Triton, modules
that the driver loads), or while a launch call of 1 ms or more loads its kernel. A profile that begins with the first
step shows compilation that a later one would not. Where only the first of several steps compiles, the finding says so.

On a CPU oneDNN generates code for the shapes of each convolution or product. Where none of three or more recorded steps
shares its shapes with another one, each step pays for its own.

A live run knows more: what was compiled after the warm-up, which guard failed, and which functions the compiler gave
up.

## What it costs

    cost (high) = idle time of the device while the host compiles or loads, the mean of the steps
    cost (low)  = the same where a recorded step other than the first compiles; else 0

A live run adds to the high end only, because a program may have met all its shapes by now:

    + how much longer the steps that compiled are than the median one, as a mean of all steps without the profiler
    + for functions that the compiler gave up: the idle time that launching and Python cause in them, and the saving
      from fusing their chains (M01)

For shapes that are new to oneDNN in each step the low end is 0, the high end what their operations take beyond their
floors.

## What helps

- `torch.compile(dynamic=True)`, or `torch._dynamo.mark_dynamic(x, 0)` for the dimension that varies.
- Static shapes: pad to a few lengths.
- Numbers that change as tensors (`lr=torch.tensor(...)`), not as Python floats.
- Warm up before profiling. If the trace has no event of torch.compile, modules were loaded, and only this helps.

`TORCH_LOGS=recompiles` prints which guard failed.

## Sick

```python
step = torch.compile(step, dynamic=False)
for length in range(100, 200):
    step(tokens[:, :length])  # compiles for each
```

## Healthy

```python
torch._dynamo.mark_dynamic(tokens, 1)
step = torch.compile(step)
```
"""

from __future__ import annotations

import re

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import COMPILE_CAUSE, IDLE_CAUSES
from gobrrr.analysis.detect.slow_forms import beyond
from gobrrr.analysis.events.calls import HostCall, classify, compiles
from gobrrr.analysis.findings.claims import ClaimedFinding, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import idle_under, spans_of
from gobrrr.analysis.host.new_shapes import new_shapes
from gobrrr.conditions.again import again_of
from gobrrr.conditions.common import PLACES_SHOWN, about_calls, finding, places, recorded_steps_of, which_steps
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O05"
TITLE = "kernels compiled or loaded within the step"
TITLE_SHAPES = "new shapes in every step: oneDNN generates code for each"

REGION = re.compile(r"^Torch-Compiled Region: (\d+/\d+)")
"""The call of a compiled graph, as the profiler names it."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Idle time of the device during the compiler's events, and in launches that load their kernel first."""
    if len(new := new_shapes(evidence)):
        return _of_shapes(evidence, new)
    gaps, rows, live = evidence.budget.gaps, _rows(evidence), again_of(evidence)
    under = idle_under(evidence, spans_of(evidence, rows))
    own = gaps.of(COMPILE_CAUSE).astype(np.float64)
    if not len(rows) and not evidence.device.asynchronous and _quiet(evidence):
        own = np.zeros_like(own)
    rest = np.maximum(under - own, 0.0)
    idle = float((own + rest).sum()) / evidence.steps.count
    again = bool((recorded_steps_of(evidence, rows) > 1).any())
    every = np.arange(len(gaps))
    others = tuple(cause for cause in IDLE_CAUSES if cause != COMPILE_CAUSE)
    claim = of_gaps(evidence, every, own, causes=(COMPILE_CAUSE,)) + of_gaps(evidence, every, rest, causes=others)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[*live.where, *_places(evidence, rows)][:PLACES_SHOWN],
        at_stake=(idle if again else 0.0, idle + live.saving),
        claim=claim + live.claim,
        certainty="high" if len(rows) or live.certain else "medium",
        treatments=["static-shapes"] if live.facts or compiles(evidence.events.names) else ["warm-up"],
        facts=[
            *live.facts,
            *(_facts(evidence, rows, idle) if idle > 0 else []),
            *([which_steps(evidence, rows, "compile", again=again)] if len(rows) else []),
        ],
    )


def _of_shapes(evidence: Evidence, calls: I8) -> ClaimedFinding | None:
    """The finding about operations on shapes that no other recorded step has."""
    ns, steps = beyond(evidence, calls), evidence.steps.count
    taken = float(evidence.calls.ns[calls].sum()) / steps
    lines: dict[str | None, list[int]] = {}
    for call in calls.tolist():
        lines.setdefault(evidence.source(int(evidence.calls.op[call])), []).append(call)
    return about_calls(
        evidence,
        CODE,
        TITLE_SHAPES,
        (calls, np.zeros(len(calls)), ns),
        where=places(evidence, (np.array(line, dtype=np.int64) for line in lines.values())),
        certainty="medium",
        treatments=["static-shapes"],
        facts=[
            f"{units.things(len(calls) / steps, 'operation')} of oneDNN a step, on shapes that no other of the "
            f"{steps} recorded steps has: each is a first use",
            f"they take {units.duration(taken)} a step; how much of that is code generation is not known",
        ],
    )


def _rows(evidence: Evidence) -> I8:
    """The compiler's events within the steps, without those that only the profiler of a live run caused."""
    events = evidence.replayed
    rows = np.flatnonzero(classify(events.names)[events.name] == HostCall.COMPILE)
    rows = rows[(events.end_ns[rows] > evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)]
    if not _quiet(evidence):
        return rows
    return np.array([row for row in rows.tolist() if not compiles((events.name_of(row),))], dtype=np.int64)


def _quiet(evidence: Evidence) -> bool:
    """Whether a live run knows that nothing was compiled in the steps without the profiler."""
    compiled = evidence.profile.compiled
    return compiled is not None and compiled.steady_compiles == 0


def _facts(evidence: Evidence, rows: I8, idle: float) -> list[str]:
    names = {evidence.replayed.name_of(row) for row in rows.tolist()}
    regions = sorted({match[1] for name in evidence.events.names if (match := REGION.match(name))})
    facts = [f"the device idles for {units.duration(idle)} a step while the host compiles or loads kernels"]
    if len(rows):
        facts.append(
            f"{units.a_step(len(rows) / evidence.steps.count, 'event')} of a compiler or of kernel loading: "
            f"{', '.join(sorted(names)[:3])}"
        )
    else:
        facts.append(
            "no event of a compiler was recorded: launch calls of 1 ms or more on an idle device load their kernels"
        )
    return [*facts, *([f"compiled regions that ran: {', '.join(regions[:8])}"] if regions else [])]


def _places(evidence: Evidence, rows: I8) -> list[Place]:
    events = evidence.replayed
    longest = rows[np.argsort(-events.duration_ns[rows], kind="stable")][:PLACES_SHOWN]
    return [
        Place(op=events.name_of(row), source=evidence.source(row), count=1.0, ns=float(events.duration_ns[row]))
        for row in longest.tolist()
    ]
