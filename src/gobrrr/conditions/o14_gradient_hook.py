"""A hook on gradients takes a tenth of the step or more.

`tensor.register_hook`, `register_post_accumulate_grad_hook` and a module's `register_full_backward_hook` register a
function that is called in each backward pass, once for each parameter or module: to log norms, to clip, to look for
NaN. Such a function is easily forgotten: no line of the step calls it.

## How it is recognised

Python frames that autograd itself calls in the backward pass: directly within a node, within the accumulation of a
gradient, or within torch's own function for module hooks. Frames within an operation of the backward pass do not count:
those are functions with a custom backward. Torch's own hooks (DDP, FSDP) do not count either. Everything that runs in
the frames counts, if it is a tenth of the step or more.

On a GPU autograd calls hooks in a separate thread. Its frames are recorded only if it ran before the recording began,
for instance in a warm-up.

## What it costs

    at stake (high) = everything that runs in the hooks: Python, dispatch, and on a CPU computing
    at stake (low)  = 0: how much of it the program needs is not known

## What helps

- Numbers for monitoring: every N steps, after `loss.backward()`, on all gradients at once (`torch._foreach_norm`).
- Clipping: `torch.nn.utils.clip_grad_norm_(model.parameters(), most)`.
- No `.item()` and no `float()` of a tensor in a hook.
- `handle.remove()` for a hook that is left over from debugging.

## Sick

```python
for name, weight in model.named_parameters():
    weight.register_hook(lambda grad, name=name: log(name, grad.abs().quantile(0.9).item()))
```

## Healthy

```python
if number % 100 == 0:
    log_all(torch._foreach_norm([one.grad for one in model.parameters()]))
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.gradient_hooks import Hook, gradient_hooks, inner_operations
from gobrrr.analysis.host.holding import KNOWN_KIND_CAUSES, LEAST_KNOWN_SHARE
from gobrrr.analysis.host.host_kinds import called
from gobrrr.conditions.common import PLACES_SHOWN, finding, needs_frames, short_op
from gobrrr.model.diagnosis import NotChecked, Place

CODE = "O14"
TITLE = "a gradient hook that takes much of the step"
MOST_CALLED = 2
"""Operations that are named for each hook; chosen for one screen."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Hooks that take a tenth of the step or more."""
    if not evidence.profile.frames:
        return needs_frames(CODE)
    hooks = [hook for hook in gradient_hooks(evidence) if hook.spent.ns >= LEAST_KNOWN_SHARE * evidence.wall_ns]
    if not hooks:
        return None
    gap_ns, call_ns = np.zeros(len(evidence.budget.gaps)), np.zeros(len(evidence.calls))
    for hook in hooks:
        gap_ns += hook.spent.gap_ns
        call_ns[hook.spent.calls] += hook.spent.call_ns
    gaps, calls = np.flatnonzero(gap_ns), np.flatnonzero(call_ns)

    return finding(
        evidence,
        CODE,
        TITLE,
        where=[_place(evidence, hook) for hook in hooks[:PLACES_SHOWN]],
        at_stake=(0.0, sum(hook.spent.ns for hook in hooks)),
        claim=of_gaps(evidence, gaps, gap_ns[gaps], np.zeros(len(gaps)), causes=KNOWN_KIND_CAUSES)
        + of_calls(calls, np.zeros(len(calls)), np.minimum(call_ns, evidence.calls.ns)[calls]),
        certainty="high",
        treatments=["lighter-hook"],
        facts=[_fact(evidence, hook) for hook in hooks[:PLACES_SHOWN]],
    )


def _place(evidence: Evidence, hook: Hook) -> Place:
    return Place(op=called(hook.name), source=hook.name, count=len(hook.rows) / evidence.steps.count, ns=hook.spent.ns)


def _fact(evidence: Evidence, hook: Hook) -> str:
    inside = ", ".join(
        f"{short_op(name)} ({units.duration(ns)})" for name, ns in inner_operations(evidence, hook)[:MOST_CALLED]
    )
    calls = f"; most of its time in operations: {inside}" if inside else ""
    return (
        f"{called(hook.name)} is called {units.a_step(len(hook.rows) / evidence.steps.count, 'time')} in the backward "
        f"pass: {units.duration(hook.spent.ns)}, {units.percent(hook.spent.ns / evidence.wall_ns)} of the step{calls}"
    )
