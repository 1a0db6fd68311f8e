"""Keep the weights of linear layers in 8 bits, for inference.

A decode step reads every weight for a few rows of activations: its time is the weights' bytes. In int8 with a scale for
each row the weights take half of bfloat16's bytes, and a fused kernel (`torch.compile`) reads them as they are. The
error is that of rounding each weight to 1/127 of the largest in its row.

Predicted: nothing, because it is not known in advance what share of the bandwidth the smaller product reaches. Without
`torch.compile` the weights are first written out in the activations' type, which is slower than no quantization.
Compute-bound products gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, quantizing
from gobrrr.treatments.framework.way import MODEL, TreatmentWay, UnfitWay

NAME = "int8-weights"
NUMERICS = "statistics"
CODE = """
from torchao.quantization import Int8WeightOnlyConfig, quantize_

quantize_(model, Int8WeightOnlyConfig())
model = torch.compile(model)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """None: the smaller product's share of the bandwidth is not known."""
    return None


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Every linear layer whose dimensions fit, of a model that is not trained."""
    if not quantizing.installed():
        yield UnfitWay(NAME, "torchao is not installed")
    elif applying.goes_back(workload):
        yield UnfitWay(NAME, "the step trains")
    elif not quantizing.linears(workload):
        yield UnfitWay(NAME, applying.of_model(workload, "no nn.Linear with dimensions that are multiples of 16"))
    else:
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=quantizing.in_fewer_bits(_config), code=CODE.strip(),
            numerics="statistics", rank=MODEL + 1, conflicts=frozenset({"fp8", "pad-dimensions"}),
            worth=quantizing.worth("memory"),
        )  # fmt: skip


def _config() -> Any:
    return import_module("torchao.quantization").Int8WeightOnlyConfig()
