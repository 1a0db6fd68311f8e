"""Multiply in float8: large products, on devices of compute capability 8.9 or more.

Both operands are scaled to float8 and multiplied at twice the 16-bit rate. Scaling reads each operand once more, so
that small products get slower; under `torch.compile` the scaling fuses with the operation before it. Dimensions must be
multiples of 16.

Predicted: nothing, because the cost of scaling is not known in advance. In training, watch the loss: operands have 3
bits of mantissa, gradients 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, quantizing
from gobrrr.treatments.framework.way import MODEL, TreatmentWay, UnfitWay

NAME = "fp8"
NUMERICS = "statistics"
CODE = """
from torchao.float8 import convert_to_float8_training  # inference: Float8DynamicActivationFloat8WeightConfig

convert_to_float8_training(model, module_filter_fn=lambda one, name: one.in_features % 16 == one.out_features % 16 == 0)
model = torch.compile(model)
"""
INFERENCE = """
from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, quantize_

quantize_(model, Float8DynamicActivationFloat8WeightConfig())
model = torch.compile(model)
"""
LEAST_FP8_CAPABILITY = (8, 9)
"""The first compute capability with products of float8."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """None: the cost of scaling is not known."""
    return None


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Every linear layer whose dimensions fit, for training or for inference."""
    import torch

    if not quantizing.installed():
        yield UnfitWay(NAME, "torchao is not installed")
    elif not applying.on_cuda(workload) or torch.cuda.get_device_capability() < LEAST_FP8_CAPABILITY:
        yield UnfitWay(NAME, "it needs a CUDA device of compute capability 8.9 or more")
    elif not quantizing.linears(workload):
        yield UnfitWay(NAME, applying.of_model(workload, "no nn.Linear with dimensions that are multiples of 16"))
    else:
        trains = applying.trains(workload) or workload.step is not None
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=_training if trains else quantizing.in_fewer_bits(_config),
            code=(CODE if trains else INFERENCE).strip(), numerics="statistics", rank=MODEL + 1,
            conflicts=frozenset({"int8-weights", "pad-dimensions"}), worth=quantizing.worth("compute"),
        )  # fmt: skip


def _config() -> Any:
    return import_module("torchao.quantization").Float8DynamicActivationFloat8WeightConfig()


@contextmanager
def _training(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    """The layers swapped for torchao's, which hold the same parameters."""
    module = applying.module_of(workload)
    if "layers" not in kept:
        kept["layers"] = [
            (parent, name, _layer(child))
            for parent in list(module.modules())
            for name, child in parent.named_children()
            if any(child is linear for linear in quantizing.linears(workload))
        ]
    with ExitStack() as stack:
        for parent, name, layer in kept["layers"]:
            applying.swapped(stack, parent._modules, name, layer)
        yield workload


def _layer(linear: Any) -> Any:
    """torchao's layer in place of one of torch's, with the same parameter objects."""
    try:
        config = import_module("torchao.float8").Float8LinearConfig()
        layer = import_module("torchao.float8.float8_linear").Float8Linear.from_float(linear, config)
    except (ImportError, RuntimeError, AssertionError, TypeError) as error:
        raise quantizing.refused(error) from error
    layer._parameters.update(linear._parameters)
    return layer
