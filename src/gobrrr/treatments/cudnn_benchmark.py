"""Let cuDNN time its algorithms instead of guessing one.

With `torch.backends.cudnn.benchmark` each new shape is convolved once with every algorithm that fits, and the fastest
is kept. It pays off where shapes repeat; where each batch has a shape of its own each one pays for the trial.
Algorithms differ by rounding, and which one wins may differ from run to run.

Replayed: from nothing (no algorithm for this shape, layout and type may be better) to the finding's high end. Where
it is on already, another layout or size is what is left.

For one layer alone: another memory format (`layer.to(memory_format=...)`), a batch of another size, the other type of
16 bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import SETTINGS, Unfit, Way
from gobrrr.treatments.framework.wording import said, where

NAME = "cudnn-benchmark"
NUMERICS = "rounding"
CODE = """
torch.backends.cudnn.benchmark = True  # before the first step
layer = layer.to(memory_format=torch.contiguous_format)  # or for the layer alone
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """From nothing to the finding's high end."""
    if found.finding.code != "C06":
        return None
    switches = evidence.profile.switches
    if switches is not None and switches.cudnn_benchmark:
        told = "another memory format or size for this layer: cudnn.benchmark is on already"
        how = said(told, where(found.finding))
        return of_claim(
            evidence, found, how, "a layout or a size that a better algorithm takes", least=0.0, better=True
        )
    how = "torch.backends.cudnn.benchmark = True  # before the first step; else another memory format for this layer"
    return of_claim(
        evidence, found, how, "one of the other algorithms takes this shape, type and layout", least=0.0, better=True
    )


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """The switch, for a model with convolutions on a CUDA device."""
    import torch

    kinds = torch.nn.modules.conv._ConvNd
    if not applying.on_cuda(workload):
        yield Unfit(NAME, "cuDNN needs a CUDA device")
    elif applying.module_of(workload) is not None and not applying.modules_of(workload, kinds):
        yield Unfit(NAME, "the model has no convolutions")
    elif torch.backends.cudnn.benchmark:
        yield Unfit(NAME, "it is on already")
    else:
        yield Way(
            name=NAME,
            treatment=NAME,
            apply=applying.entered(lambda _: _switched()),
            code="torch.backends.cudnn.benchmark = True",
            numerics="rounding",
            rank=SETTINGS,
            as_if=(NAME,),
        )


def _switched() -> Any:
    import torch

    stack = ExitStack()
    stack.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    torch.backends.cudnn.benchmark = True
    return stack
