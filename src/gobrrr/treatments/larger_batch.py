"""Give the device more work for each launch.

The host issues the same launches whatever the batch. Until the device's time reaches the host's, a larger batch costs
no time: the time for today's amount of work falls by the factor of the batch.

Predicted, for the work of one of today's steps: the device's work grows with the batch, except for each kernel's launch
and ramp; the optimizer's updates stay. In inference a memory-bound product reads its weights once, until its FLOPs take
longer. The time that the device waits for input grows too, because a loader works sample by sample. At the low end the
host's time grows as well. The saving is throughput: the step itself gets no shorter.

It is not predicted where the host's time, without waiting for input, is enough for less than 1.2 times the batch; nor
where a loop over the batch dimension holds the step, because its turns grow with the batch. `--what-if larger-batch=4`
asks for four times the batch, whatever bounds the step.

In training it changes the optimisation: learning rate, schedule and generalisation. Gradient accumulation with fewer,
larger micro-batches does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gobrrr.analysis.budget.idle import INPUT_CAUSE
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.loops import grows_with_batch
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.savings.gains import EXPECTED_SHARE_OF_EFFECT, TreatmentPlan
from gobrrr.analysis.savings.regions import larger
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import SETTINGS, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import BATCH_SIZE, argument, made_with, said

NAME = "larger-batch"
NUMERICS = "statistics"
LEAST_BATCH_FACTOR = 1.2
"""The smallest factor of the batch that is predicted: the time of a step varies by as much. Chosen, not measured."""

MOST_BATCH_FACTOR = 16
"""The largest factor that is predicted: memory, or the statistics of training, set a limit before. Chosen."""
CODE = """
loader = torch.utils.data.DataLoader(..., batch_size=4 * batch_size)  # training: and scale the learning rate with it
"""
SAME_WORK = (
    "the saving is for today's amount of work: the step itself gets no shorter; the larger batch fits into memory"
    """What the prediction assumes."""
)


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The host's time for one step that does the work of several."""
    if found.finding.code != "O01":
        return None
    path = path_of(evidence)
    grows = path.busy + evidence.line("overhead", INPUT_CAUSE)
    factor = path.wall / grows if grows else 0.0
    if factor < LEAST_BATCH_FACTOR or grows_with_batch(evidence):
        return None
    times = min(factor, float(MOST_BATCH_FACTOR))
    if not evidence.device.asynchronous:
        times = float(MOST_BATCH_FACTOR)  # dispatch and Python are paid once; computing grows with the batch
        advice = "throughput: dispatch and Python take no longer for a larger batch"
        assumes = (
            f"high: {MOST_BATCH_FACTOR} times the batch; the saving is for today's amount of work; it fits into memory"
        )
    else:
        enough = f"about {factor:.1f}" if factor <= MOST_BATCH_FACTOR else f"more than {MOST_BATCH_FACTOR}"
        advice = f"throughput: the host's time is enough for {enough} times the batch"
        assumes = SAME_WORK
    how = _how(evidence, max(int(times), TRIED_BATCH_FACTOR), advice)
    return _plan(evidence, times, how, assumes)


def _plan(evidence: Evidence, times: float, how: str, assumes: str) -> TreatmentPlan:
    """The plan for `times` the batch. The step takes no less than the device's work plus the wait for input."""
    effect, waits = larger(evidence, times), evidence.line("overhead", INPUT_CAUSE)
    now = float(evidence.graph.duration.sum())
    longer = float(effect(EXPECTED_SHARE_OF_EFFECT)(evidence.graph).duration.sum()) / now if now else times
    least = times * waits + longer * path_of(evidence).busy if waits and times > 1.0 else 0.0
    return TreatmentPlan(how, assumes, effect, least_ns=(least, least), work=times, once=True)


def _how(evidence: Evidence, times: int, advice: str) -> str:
    """The program's own loader with `times` its batch size, where the line that makes it is known."""
    loader = program_of(evidence).loader
    call = loader.written.call if loader is not None and loader.written is not None else None
    size = argument(call, BATCH_SIZE, BATCH_SIZE) if call is not None else None
    if size is None:
        return said(advice)
    size = size if re.fullmatch(r"[\w.]+", size) else f"({size})"
    return made_with(loader, {BATCH_SIZE: f"{times} * {size}"}, note=advice) or said(advice)


def by(evidence: Evidence, times: float) -> TreatmentPlan:
    """A step with `times` the batch, whatever bounds it."""
    how = said(f"{times:g} times the batch")
    return _plan(evidence, times, how, SAME_WORK)


TRIED_BATCH_FACTOR = 2
"""The factor of the batch in a trial, and in its prediction: a fixed one, because the factor that the host's time
allows changes with every way that is kept."""


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Twice the batch: the inputs and targets concatenated with themselves."""
    given = list(applying.tensors_of((workload.inputs, workload.targets)))
    sizes = {tensor.shape[0] if tensor.dim() else None for tensor in given}
    if workload.loader is not None:
        yield UnfitWay(NAME, "batches come from a loader: change its batch_size in the source")
    elif workload.model is None or not sizes:
        yield UnfitWay(NAME, "which of the step's inputs are a batch is not known: a gobrrr.Workload names its inputs")
    elif len(sizes) != 1 or None in sizes:
        yield UnfitWay(NAME, "its input tensors do not share a first dimension")
    else:
        (size,) = sizes
        trains = applying.goes_back(workload)
        yield TreatmentWay(
            name=NAME,
            treatment=NAME,
            apply=_apply,
            code=f"batch_size = {TRIED_BATCH_FACTOR * int(size or 0)}  # of {size}{_besides(workload)}",
            numerics="statistics" if trains else "rounding",
            rank=SETTINGS,
            as_if=(f"{NAME}={TRIED_BATCH_FACTOR}",),
            work=float(TRIED_BATCH_FACTOR),
        )


def _besides(workload: Workload) -> str:
    """What a larger batch needs besides in training; "" otherwise."""
    return "; and scale the learning rate with it" if applying.trains(workload) else ""


def _twice(tensor: Any) -> Any:
    import torch

    return torch.cat([tensor.detach()] * TRIED_BATCH_FACTOR).requires_grad_(tensor.requires_grad)


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    if "doubled" not in kept:
        kept["doubled"] = (
            applying.mapped(tuple(workload.inputs), _twice), applying.mapped(tuple(workload.targets), _twice),
        )  # fmt: skip
    inputs, targets = kept["doubled"]
    yield replace(workload, inputs=inputs, targets=targets)
