"""One workload's issue time, in a process of its own that bench/gpu/runs.py starts and may end.

    python -m bench.gpu.issue_time_one NAME FOLDER --lock FILE        (FOLDER/NAME.json and FOLDER/NAME.profile.xz)

A round times a block of steps as they follow one another; an operation on one element (dispatch), which tells whether
the host is in a slow phase; then single steps that each begin on an idle device, until the step returns (issued) and
until the device is done (alone). In a step that reads a result from the device the host waits for the device; torch
says how often (waits). A device's queue takes 1,024 launches, after which the host waits as well. Then the passes of a
step are timed on the host, from an idle device too: forward, backward, the optimizer's. At last the step is profiled,
as the bench of treatments does it: until then torch's profiler is not loaded.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

from bench.gpu.timed import wait
from bench.gpu.treatment_workloads import ENTRIES
from bench.gpu.treatments_one import begun, parser, small, watched
from bench.stored_profile import pack
from gobrrr.hardware.measure.device import cpu_name
from gobrrr.model.workload import Workload
from gobrrr.observe.live.recorder import time_loops
from gobrrr.observe.live.watches.syncs import looking
from gobrrr.trials import timing
from gobrrr.trials.arms import Arm

PROFILE = ".profile.xz"
WARM_S = 3.0
BLOCK_NS, LEAST_STEPS = 20e6, 2
SINGLE = 4
"""Steps of a round that begin on an idle device."""

FEWEST, MOST = 5, 40
"""Rounds."""

PARTED = 7
"""Steps whose passes are timed."""

Call = Callable[[], Any]


def measure(workload: Workload, seconds: float) -> dict[str, Any]:
    """All that is measured of one workload without torch's profiler."""
    with Arm(workload, ()).entered() as entered:
        warmth = timing.warm_up(entered.call, seconds=WARM_S)
        found = rounds(entered.call, warmth.step_ns, seconds)
        passes = parts(workload, entered.call)
        waits = waits_of(entered.call)
    return {**found, "passes": passes, "waits": waits}


def rounds(call: Call, step_ns: float, seconds: float) -> dict[str, Any]:
    """Steps in a row, and single ones from an idle device, in turns."""
    steps = max(LEAST_STEPS, math.ceil(BLOCK_NS / max(step_ns, 1.0)))
    flow: list[float] = []
    issue: list[float] = []
    alone: list[float] = []
    idle: list[bool] = []
    dispatch: list[float] = []
    begin = time.perf_counter()
    while len(flow) < MOST and (len(flow) < FEWEST or time.perf_counter() - begin < seconds):
        dispatch.append(time_loops().op_ns)
        flow.append(in_a_row(call, steps))
        for _ in range(SINGLE):
            issued, done, over = single(call)
            issue.append(issued)
            alone.append(done)
            idle.append(over)
    return {
        "step_ns": statistics.median(flow), "issue_ns": statistics.median(issue), "alone_ns": statistics.median(alone),
        "issue_quartiles_ns": statistics.quantiles(issue, n=4)[::2], "least_issue_ns": min(issue),
        "done_at_return": sum(idle) / len(idle), "rounds": len(flow), "steps": flow, "issues": issue, "alones": alone,
        "dispatch_ns": statistics.median(dispatch), "dispatches": dispatch,
    }  # fmt: skip


def in_a_row(call: Call, steps: int) -> float:
    """ns of a step among several, the first of which is not timed."""
    call()
    wait()
    begin = time.perf_counter_ns()
    for _ in range(steps):
        call()
    wait()
    return (time.perf_counter_ns() - begin) / steps


def single(call: Call) -> tuple[float, float, bool]:
    """(ns until the step returned, ns until the device was done, whether it was done when the step returned)."""
    wait()
    begin = time.perf_counter_ns()
    call()
    issued = time.perf_counter_ns()
    over = not torch.cuda.is_available() or torch.cuda.current_stream().query()
    wait()
    return float(issued - begin), float(time.perf_counter_ns() - begin), over


def parts(workload: Workload, call: Call) -> dict[str, float]:
    """ns of the host in the passes of a step, the median of each; only those that the step has."""
    found: dict[str, list[float]] = {}
    with timed_passes(workload) as spent:
        for _ in range(PARTED):
            wait()
            spent.clear()
            begin = time.perf_counter_ns()
            call()
            spent["step"] = time.perf_counter_ns() - begin
            for name, ns in spent.items():
                found.setdefault(name, []).append(float(ns))
    wait()
    return {name: statistics.median(ns) for name, ns in found.items()}


@contextmanager
def timed_passes(workload: Workload) -> Iterator[dict[str, int]]:
    """ns by pass while it is open: of the workload's model, of `backward`, of optimizers' steps."""
    spent: dict[str, int] = {}
    begun: dict[str, int] = {}

    def begins(name: str) -> Callable[..., None]:
        def now(*_: Any, **__: Any) -> None:
            begun[name] = time.perf_counter_ns()

        return now

    def ends(name: str) -> Callable[..., None]:
        def now(*_: Any, **__: Any) -> None:
            spent[name] = spent.get(name, 0) + time.perf_counter_ns() - begun[name]

        return now

    plain = torch.autograd.backward

    def backward(*given: Any, **named: Any) -> None:
        begins("backward")()
        plain(*given, **named)
        ends("backward")()

    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    with ExitStack() as stack:
        hooks = [
            register_optimizer_step_pre_hook(begins("optimizer")), register_optimizer_step_post_hook(ends("optimizer")),
        ]  # fmt: skip
        if isinstance(workload.model, torch.nn.Module):
            hooks.append(workload.model.register_forward_pre_hook(begins("forward")))
            hooks.append(workload.model.register_forward_hook(ends("forward")))
        for hook in hooks:
            stack.callback(hook.remove)
        stack.enter_context(mock.patch.object(torch.autograd, "backward", backward))
        yield spent


def waits_of(call: Call) -> float:
    """How often a step makes the host wait for the device."""
    with looking() as watch:
        call()
    return float(sum(wait_found.count for wait_found in watch.found()))


def main() -> int:
    asked, turn = begun(parser(__doc__, ENTRIES, each_s=3.0))
    turn.take()
    workload = ENTRIES[asked.name].made(device=asked.device, tiny=asked.tiny)
    found = measure(workload, asked.each_s)
    profile = watched(workload).profile(asked.name, cpu_name())
    turn.give()
    live = profile.ranks[0].live
    found["watched_ns"] = None if live is None else live.times.wall_ns
    (asked.folder / f"{asked.name}{PROFILE}").write_bytes(pack(profile))
    (asked.folder / f"{asked.name}.json").write_text(json.dumps(small(found)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
