"""A debug feature was left on: each step pays for checks, stack traces, waits or a tracer.

Tools that find a bug cost time in each step that has none. Anomaly detection records a stack for each operation and
checks each gradient for NaN, `CUDA_LAUNCH_BLOCKING` makes the host wait for each kernel, a debugger or a coverage tool
runs at each line.

## How it is recognised

What a live run reads from torch, Python and the environment while the steps run: anomaly detection, blocking launches,
deterministic algorithms, synchronization warnings, trace and profile functions, debuggers, and environment variables
that make the host's calls longer (`PYTHONDEVMODE`, `PYTHONTRACEMALLOC`, verbose libraries). For anomaly detection and
deterministic algorithms the finding names the line that switches them on.

## What it costs

    anomaly detection         the time under its stack traces and its checks, as the profiler saw them;
                              the low end is the same on a CPU, 0 on a GPU, where it may be hidden
    tracers, debuggers        [0, Python between operations]: their part of it can't be measured from inside
    variables                 [0, launching and Python]
    blocking launches         [0, min(device, host)]: with them W = host + device, without at least the larger of both
    deterministic algorithms  [filling new memory, that + what operations with another algorithm take above their floor]
    synchronization warnings  [0, the time in Python's warnings]

## What helps

- `torch.autograd.set_detect_anomaly(False)`, or only around the steps under investigation.
- `unset CUDA_LAUNCH_BLOCKING`.
- Measure and train without debugger and coverage.
- `torch.utils.deterministic.fill_uninitialized_memory = False`, where determinism is wanted.

## Sick

```python
torch.autograd.set_detect_anomaly(True)  # from the day the loss was NaN
for batch in loader:
    step(batch)
```

## Healthy

```python
for number, batch in enumerate(loader):
    with torch.autograd.set_detect_anomaly(number in suspects):
        step(batch)
```
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import NO_CLAIM, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import finding, needs_live
from gobrrr.conditions.debug_costs import costs
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "O08"
TITLE = "debug features left on"


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """The cost of all features that are on."""
    switches = evidence.profile.switches
    if switches is None:
        return needs_live(CODE)
    features = sorted(costs(evidence, switches), key=lambda cost: -cost.high)
    if not features:
        return None
    low = sum(cost.low for cost in features)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[Place(op=cost.name, source=cost.source, ns=cost.high) for cost in features],
        at_stake=(low, sum(cost.high for cost in features)),
        claim=sum((cost.claim for cost in features), NO_CLAIM),
        certainty="high" if low > 0 else "medium",
        treatments=["debug-off"],
        facts=[*(cost.fact for cost in features), f"to switch off: {'; '.join(cost.how for cost in features)}"],
    )
