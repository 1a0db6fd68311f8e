"""Give the device more work for each launch.

The host issues the same launches whatever the batch. Until the device's time reaches the host's, a larger batch
costs no time: the time for today's amount of work falls by the factor of the batch.

Replayed, for the work of one of today's steps: the device's work takes as many times as long as the batch is larger,
but for launch and ramp of each kernel, and the updates stay. In inference a product that memory binds reads its weights
once, until its FLOPs take longer. The time that the device waits for input takes as many times as long, too: a loader
works sample by sample. At the least the host's time grows as well. That is throughput: the step itself gets no shorter.

It is no remedy where the host's time without the waiting for input is enough for less than 1.2 times the batch; nor
where a loop over a tensor's first dimension, in which the elements of a batch lie, holds the step: its turns grow with
the batch. `--what-if larger-batch=4` asks for a batch of four times the size, whatever bounds the step.

It changes the optimisation where the step trains: learning rate, schedule and generalisation. Gradient accumulation
with fewer, larger micro-batches keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gobrrr.analysis.budget.idle import INPUT
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.loops import grows_with_batch
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.savings.gains import EXPECTED, Plan
from gobrrr.analysis.savings.regions import larger
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import SETTINGS, Unfit, Way
from gobrrr.treatments.framework.wording import BATCH_SIZE, argument, made_with, said

NAME = "larger-batch"
NUMERICS = "statistics"
LEAST = 1.2
"""A smaller factor of the batch is within what the step's time varies by."""

MOST = 16
"""A larger factor is not told: the batch runs into the memory or into its statistics before."""
CODE = """
loader = torch.utils.data.DataLoader(..., batch_size=4 * batch_size)  # training: and scale the learning rate with it
"""


SAME_WORK = "the saving is for today's amount of work, the step gets no shorter; memory allows it"


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """The host's time for a step that does the work of several."""
    if found.finding.code != "O01":
        return None
    path = path_of(evidence)
    grows = path.busy + evidence.line("overhead", INPUT)
    factor = path.wall / grows if grows else 0.0
    if factor < LEAST or grows_with_batch(evidence):
        return None
    times = min(factor, float(MOST))
    if not evidence.device.asynchronous:
        times = float(MOST)  # dispatch and Python are paid once for so many times the work, and computing follows it
        told = "throughput: dispatch and Python take as long for a larger batch"
        assumes = f"high: {MOST} times the batch; the saving is for today's amount of work; memory allows it"
    else:
        enough = f"about {factor:.1f}" if factor <= MOST else f"more than {MOST}"
        told = f"throughput: the host's time is enough for {enough} times the batch"
        assumes = SAME_WORK
    how = _how(evidence, max(int(times), TIMES), told)
    return _plan(evidence, times, how, assumes)


def _plan(evidence: Evidence, times: float, how: str, assumes: str) -> Plan:
    """So many times the batch. The step then takes no less than the device's work and the waiting for input do."""
    effect, waits = larger(evidence, times), evidence.line("overhead", INPUT)
    now = float(evidence.graph.duration.sum())
    longer = float(effect(EXPECTED)(evidence.graph).duration.sum()) / now if now else times
    least = times * waits + longer * path_of(evidence).busy if waits and times > 1.0 else 0.0
    return Plan(how, assumes, effect, least_ns=(least, least), work=times, once=True)


def _how(evidence: Evidence, times: int, told: str) -> str:
    """The program's own loader with so many times its batch, where its making is known."""
    made = program_of(evidence).loader
    call = made.written.call if made is not None and made.written is not None else None
    size = argument(call, BATCH_SIZE, BATCH_SIZE) if call is not None else None
    if size is None:
        return said(told)
    size = size if re.fullmatch(r"[\w.]+", size) else f"({size})"
    return made_with(made, {BATCH_SIZE: f"{times} * {size}"}, note=told) or said(told)


def by(evidence: Evidence, times: float) -> Plan:
    """A step with so many times the batch, whatever bounds it."""
    how = said(f"{times:g} times the batch")
    return _plan(evidence, times, how, SAME_WORK)


TIMES = 2
"""How many times today's batch is tried, and predicted for the trial: that is defined whatever bounds the step, and on
top of whatever is kept, where the size that the host's time is enough for is another."""


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """Twice the batch: the inputs and targets with themselves behind."""
    given = list(applying.tensors_of((workload.inputs, workload.targets)))
    sizes = {one.shape[0] if one.dim() else None for one in given}
    if workload.loader is not None:
        yield Unfit(NAME, "batches come from a loader: its batch_size is in the source")
    elif workload.model is None or not sizes:
        yield Unfit(NAME, "which of the step's inputs are a batch is not known: a gobrrr.Workload names its inputs")
    elif len(sizes) != 1 or None in sizes:
        yield Unfit(NAME, "its tensors do not share a first dimension")
    else:
        (size,) = sizes
        trains = applying.goes_back(workload)
        yield Way(
            name=NAME,
            treatment=NAME,
            apply=_apply,
            code=f"batch_size = {TIMES * int(size or 0)}  # of {size}{_besides(workload)}",
            numerics="statistics" if trains else "rounding",
            rank=SETTINGS,
            as_if=(f"{NAME}={TIMES}",),
            work=float(TIMES),
        )


def _besides(workload: Workload) -> str:
    """What else a larger batch asks for: of training alone."""
    return "; and scale the learning rate with it" if applying.trains(workload) else ""


def _twice(one: Any) -> Any:
    import torch

    return torch.cat([one.detach()] * TIMES).requires_grad_(one.requires_grad)


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    if "doubled" not in kept:
        kept["doubled"] = (
            applying.mapped(tuple(workload.inputs), _twice), applying.mapped(tuple(workload.targets), _twice),
        )  # fmt: skip
    inputs, targets = kept["doubled"]
    yield replace(workload, inputs=inputs, targets=targets)
