"""The device waits for kernel launches: many kernels, each shorter than the host needs to launch the next.

Eager PyTorch needs host time for each operation (Python, dispatch, autograd, the driver): 13 us for an addition on the
host of the shipped H100 figures (77,279 a second), more for a layer. A kernel that runs for 2 us ends long before the
next one is launched, so the step takes as long as the host needs to dispatch it, whatever the device could do.

## How it is recognised

Each stretch in which the device idles is attributed to what the host did before the next kernel. The budget's lines
`launching` (dispatch and driver) and `python` (between operations) belong to this condition, if the kernel after the
gap was launched on its own. Three numbers support it:

- half of the kernels are shorter than the host's time for one launch (host time / launches);
- kernels start as soon as they are launched: nothing was queued, the host was never ahead;
- the device's busy time is well below the step's wall time.

A step of fewer than ten launches is reported only if launching leaves the device idle for half of it.

On a CPU (a live run) nothing is launched, but each operation is dispatched: Python, autograd and the dispatcher run
before the operation computes. The finding is then called dispatch-bound. Half of the operations compute for less time
than their dispatch takes, and dispatch takes a tenth of the step or more.

Not counted:

- kernels that are replayed from a CUDA graph, which are launched together;
- gaps that end in a copy of input data (D01) or follow a synchronization (O02);
- Python without a launch that lasts more than ten times the usual time before a launch and takes 2 % of the step: it
  builds tensors, sleeps or reads files. No compiler removes it, and the answer's "held by" names its line. An
  optimizer's own Python counts.

## What it costs

    cost (high) = launching + python - launches * 0.3 us
    cost (low)  = launching + python - launches * 1 us

On a CPU no graph removes the dispatch: the low end is 0, the high end all of it.

The subtracted term is what a CUDA graph still needs between kernels: at least 0.3 us (a shipped trace of graph
replays), 1.0 us for empty kernels on an H100. The low end is reduced twice more. Where most kernels were queued, the
idle time depends on the speed of the host: the low end allows for a host that is half as fast again, as the shipped
machine's varied from run to run. It also gives up the distance from the step's estimated time to the low end of its
interval: the estimate is uncertain about the profiler's cost, all of which is overhead. A step never gets shorter than
the device's busy time.

## What helps

- A CUDA graph (`torch.compile(mode="reduce-overhead")`): one launch for the whole step. It needs static shapes and no
  synchronization in the captured region.
- `torch.compile`: fewer kernels, less Python.
- A grouped matmul for a loop over experts, where each expert has a wait and a dozen launches.
- A larger batch: the same launches do more work, until the device's time reaches the host's.
- For optimizers and averages over many parameters: the foreach or fused form.

Faster kernels do not help: a fused norm in a launch-bound step leaves the wall time unchanged.

## Sick

```python
layers = [torch.nn.Linear(256, 256, device="cuda") for _ in range(64)]
for layer in layers:  # 64 matmuls of 2 us, 20 us of host time each
    x = torch.relu(layer(x))
```

## Healthy

```python
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):  # once
    y = model(static_x)
graph.replay()  # each step: one launch
```
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.findings.claims import ClaimedFinding, TimeClaim, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import HOST_SPREAD, KERNEL_GAP_NS, QUEUED_NS, StepPath, path_of
from gobrrr.analysis.host.holding import own_python
from gobrrr.analysis.host.waits import expert_loop, inner_waits
from gobrrr.analysis.savings.regions import IN_GRAPH_NS
from gobrrr.conditions.common import PLACES_SHOWN, finding, launching, of_step, place_of_row
from gobrrr.conditions.o04_repeated_ops import check as loop_found
from gobrrr.model.diagnosis import Certainty, NotChecked, Place
from gobrrr.model.events import I8, EventKind

CODE = "O01"
TITLE = "launch-bound"
TITLE_DISPATCH = "dispatch-bound"

LEAST_STEP_LAUNCHES = 10
"""With fewer launches a step the idle time is the begin and end of the step, unless it has `OVERHEAD_BOUND_SHARE`;
chosen."""

OVERHEAD_BOUND_SHARE = 0.5
"""From this share of the step on nothing else can take as much."""

CERTAIN_SHARE = 0.2
"""With a smaller share of the step in dispatch and Python the certainty is not high; chosen, not measured."""

LEAST_SHARE_CPU = 0.1
"""A smaller share between a CPU's operations is freeing memory, reading a scalar, and other processes; chosen."""

PROMPT_SHARE = 0.5
"""If this share of the kernels starts as soon as they are launched, the host was seldom ahead; chosen."""


@dataclass(frozen=True)
class _Idle:
    """Idle ns of one step that launching causes, in all and by the operation after the gap.

    `apart`: idle ns in long stretches of Python without a launch, which launching does not cause.
    """

    ns: float
    apart: float
    by_op: dict[int, float]
    claim: TimeClaim


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Idle time from launching and Python in a step whose kernels are shorter than their launches."""
    links = evidence.priced.links
    if not (links.launch >= 0).any():
        return NotChecked(code=CODE, needs="needs the launches: profile with ProfilerActivity.CPU as well")
    path, median = path_of(evidence), _median_kernel(evidence)
    if not path.launches or median is None or median >= path.host_per_launch:
        return None
    idle = _idle(evidence)
    if path.launches < LEAST_STEP_LAUNCHES and idle.ns < OVERHEAD_BOUND_SHARE * evidence.wall_ns:
        return None
    if not evidence.device.asynchronous:
        return _dispatching(evidence, path, idle, median)
    prompt = _prompt(evidence)
    waits = inner_waits(evidence)
    looped = expert_loop(evidence, waits)
    faster = path.host * (1 - 1 / HOST_SPREAD) if prompt < PROMPT_SHARE else 0.0
    least, most = path.launches * IN_GRAPH_NS, path.launches * KERNEL_GAP_NS  # what a graph leaves of it
    low, high = path.host_saving(max(idle.ns - most - faster, 0.0), max(idle.ns - least, 0.0))
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_places(evidence, idle),
        at_stake=(low, high),
        claim=idle.claim,
        certainty=_certainty(prompt, high / evidence.wall_ns),
        treatments=_treatments(waits, looped is not None and not _reported(loop_found(evidence))),
        facts=[
            f"{units.a_step(path.launches, 'piece of device work')}, median kernel {units.duration(median)}; "
            f"the host needs {units.duration(path.host_per_launch)} to launch one",
            f"launching and Python leave the device idle for {of_step(evidence, idle.ns)}",
            f"{units.percent(prompt)} of the kernels start as soon as they are launched: "
            + ("the host is not ahead" if prompt >= PROMPT_SHARE else "for the others the host was ahead"),
            f"the device is busy for {units.duration(path.busy)} a step; a CUDA graph would still leave it idle for "
            f"{units.duration_range(least, most)} between kernels",
            *_apart(idle),
            *([f"a loop over experts: {units.a_step(round(looped), 'turn')}, each with a wait"] if looped else []),
        ],
    )


def _dispatching(evidence: Evidence, path: StepPath, idle: _Idle, median: float) -> ClaimedFinding | None:
    """The finding if the CPU computes itself: nothing is launched, queued or captured."""
    share = idle.ns / evidence.wall_ns
    if share < LEAST_SHARE_CPU:
        return None
    return finding(
        evidence,
        CODE,
        TITLE_DISPATCH,
        where=_places(evidence, idle),
        at_stake=(0.0, idle.ns),
        claim=idle.claim,
        certainty="high" if share >= CERTAIN_SHARE else "medium",
        treatments=["compile", "larger-batch"],
        facts=[
            f"{units.a_step(path.launches, 'operation')}, the median one computes for {units.duration(median)}; "
            f"dispatching one takes {units.duration(path.host_per_launch)}, including the Python around it",
            f"dispatch and Python take {of_step(evidence, idle.ns)}; the operations "
            f"compute for {units.duration(path.busy)}",
            *_apart(idle),
        ],
    )


def _median_kernel(evidence: Evidence) -> float | None:
    """Median duration of the kernels that were launched one by one; None without any."""
    links = evidence.priced.links
    own = links.device[~links.in_graph]
    kernels = own[evidence.events.kind[own] == EventKind.KERNEL]
    return float(np.median(evidence.events.duration_ns[kernels])) if len(kernels) else None


def _idle(evidence: Evidence) -> _Idle:
    gaps, behind = launching(evidence)
    ns = evidence.budget.gaps.of(LAUNCHING, PYTHON_CAUSE)[gaps].astype(np.float64)
    python = own_python(evidence, gaps)
    ns -= python
    by_op: dict[int, float] = defaultdict(float)
    for op, amount in zip(evidence.priced.links.op[behind].tolist(), ns.tolist(), strict=True):
        by_op[op] += amount / evidence.steps.count
    return _Idle(
        ns=float(ns.sum()) / evidence.steps.count,
        apart=float(python.sum()) / evidence.steps.count,
        by_op=dict(by_op),
        claim=of_gaps(evidence, gaps, ns, causes=(LAUNCHING, PYTHON_CAUSE)),
    )


def _apart(idle: _Idle) -> list[str]:
    """The fact about Python that launches nothing."""
    if not idle.apart:
        return []
    return [f"not counted: {units.duration(idle.apart)} of the program's own Python, in stretches without a launch"]


def _prompt(evidence: Evidence) -> float:
    """Share of launched kernels whose launch latency is within `QUEUED_NS` of the fastest."""
    links, rows = evidence.priced.links, evidence.replayed
    known = (links.launch >= 0) & ~links.in_graph
    lag = rows.start_ns[links.device[known]] - rows.start_ns[links.launch[known]]
    return float((lag <= np.percentile(lag, 1) + QUEUED_NS).mean()) if len(lag) else 0.0


def _reported(result: ClaimedFinding | NotChecked | None) -> bool:
    return result is not None and not (isinstance(result, ClaimedFinding) and result.hidden)


def _treatments(waits: I8, looped: bool) -> list[str]:
    """The graph first if the host never waits: a graph can't contain a wait.

    `looped`: a loop over experts that no other finding (O04) reports.
    """
    if not len(waits):
        return ["cuda-graph", "compile", "larger-batch"]
    return [*(["grouped-matmul"] if looped else []), "compile", "cuda-graph", "larger-batch"]


def _certainty(prompt: float, share: float) -> Certainty:
    if prompt >= PROMPT_SHARE and share >= CERTAIN_SHARE:
        return "high"
    return "medium" if prompt >= PROMPT_SHARE or share >= CERTAIN_SHARE else "low"


def _places(evidence: Evidence, idle: _Idle) -> list[Place]:
    """The operations whose kernels the device waited for longest, by name."""
    ns: dict[str, float] = defaultdict(float)
    rows: dict[str, list[int]] = defaultdict(list)
    for row, amount in idle.by_op.items():
        if row >= 0:
            name = evidence.events.name_of(row)
            ns[name] += amount
            rows[name].append(row)
    ranked = sorted(ns, key=lambda name: (-ns[name], name))[:PLACES_SHOWN]
    count = evidence.steps.count
    return [place_of_row(evidence, rows[name][0], len(rows[name]) / count, ns[name]) for name in ranked]
