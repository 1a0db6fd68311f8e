"""Let cuDNN time its algorithms instead of choosing by heuristics.

With `torch.backends.cudnn.benchmark` cuDNN runs every algorithm that fits once for each new shape, and keeps the
fastest. That pays off where shapes repeat; where every batch has its own shape, every batch pays for the timing.
Algorithms round differently, and the fastest one may change from run to run.

Predicted: from nothing (there may be no better algorithm for this shape, layout and type) to the finding's high end.
Where the switch is on already, another layout or size is left to try.

For one layer alone: another memory format (`layer.to(memory_format=...)`), another batch size, or the other 16-bit
type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import SETTINGS, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import said, where

NAME = "cudnn-benchmark"
NUMERICS = "rounding"
CODE = """
torch.backends.cudnn.benchmark = True  # before the first step
layer = layer.to(memory_format=torch.contiguous_format)  # or for the layer alone
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """From nothing to the finding's high end."""
    if found.finding.code != "C06":
        return None
    switches = evidence.profile.switches
    if switches is not None and switches.cudnn_benchmark:
        advice = "another memory format or size for this layer: cudnn.benchmark is on already"
        how = said(advice, where(found.finding))
        return of_claim(
            evidence, found, how, "a faster algorithm exists for another layout or size", least=0.0, better=True
        )
    how = "torch.backends.cudnn.benchmark = True  # before the first step; else another memory format for this layer"
    return of_claim(
        evidence, found, how, "another algorithm is faster for this shape, type and layout", least=0.0, better=True
    )


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """The switch, for a model with convolutions on a CUDA device."""
    import torch

    kinds = torch.nn.modules.conv._ConvNd
    if not applying.on_cuda(workload):
        yield UnfitWay(NAME, "cuDNN needs a CUDA device")
    elif applying.module_of(workload) is not None and not applying.modules_of(workload, kinds):
        yield UnfitWay(NAME, "the model has no convolutions")
    elif torch.backends.cudnn.benchmark:
        yield UnfitWay(NAME, "cudnn.benchmark is on already")
    else:
        yield TreatmentWay(
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
