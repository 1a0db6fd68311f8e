"""The lowest precision in which an arm computes, as far as parameters, autocast, TF32 and the ways' code show it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack

import torch

from gobrrr.model.workload import Workload
from gobrrr.observe.live.clock import on_gpu
from gobrrr.observe.live.state.parts import parts_of
from gobrrr.treatments.framework.way import TreatmentWay
from gobrrr.trials.observed import roundoff

TF32 = 2.0**-11
"""The unit roundoff of TF32, which has 10 bits of mantissa."""
_NAMED = (
    (re.compile(r"float8|fp8"), 2.0**-4),
    (re.compile(r"bfloat16|bf16"), 2.0**-8),
    (re.compile(r"float16|fp16|\.half\(\)"), 2.0**-11),
    (re.compile(r"tf32|float32_matmul_precision", re.IGNORECASE), TF32),
)
"""Names of types in the code of a way, and their unit roundoffs."""


def roundoff_of(layers: Sequence[Workload], ways: Sequence[TreatmentWay]) -> float:
    """The unit roundoff of the lowest precision in use while an arm is entered."""
    found = [_held(layers[-1]), *map(_around, layers)]
    found += [size for way in ways if way.numerics != "none" for size in _said(way)]
    if on_gpu() and _products_in_tf32():
        found.append(TF32)
    return max(found, default=0.0)


def _held(workload: Workload) -> float:
    """The roundoff of parameters and inputs."""
    parts = parts_of(workload)
    held = [parameter for module in parts.modules for parameter in module.parameters()] + parts.tensors
    return max((roundoff(tensor.dtype) for tensor in held), default=0.0)


def _around(workload: Workload) -> float:
    """The roundoff of autocast in the workload's contexts."""
    kinds = ("cuda", "cpu") if on_gpu() else ("cpu",)
    with ExitStack() as stack:
        for make in workload.around:
            stack.enter_context(make())
        inside = [roundoff(torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind)]
    return max(inside, default=0.0)


def _said(way: TreatmentWay) -> list[float]:
    text = f"{way.name} {way.treatment} {way.code}"
    return [size for pattern, size in _NAMED if pattern.search(text)]


def _products_in_tf32() -> bool:
    try:
        return bool(torch.get_float32_matmul_precision() != "highest")
    except RuntimeError:  # set through the new switches
        return bool(getattr(torch.backends.cuda.matmul, "fp32_precision", "") == "tf32")
