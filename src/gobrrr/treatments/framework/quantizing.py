"""Linear layers in fewer bits, by torchao if it is installed; their own weights are put back afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import NotApplicable, error_line

ALIGNED = 16
"""Both dimensions of an 8-bit product have to be multiples of this."""

PRODUCT_WORDS = ("mm", "linear", "matmul", "gemm", "scaled_mm")
"""Words in the names of calls that multiply matrices."""


def installed() -> bool:
    """Whether torchao is installed."""
    return find_spec("torchao") is not None


def linears(workload: Workload) -> list[Any]:
    """The linear layers whose dimensions fit, each once."""
    import torch

    found = applying.modules_of(workload, torch.nn.Linear)
    return [
        layer
        for layer in found
        if type(layer) is torch.nn.Linear and layer.in_features % ALIGNED == 0 and layer.out_features % ALIGNED == 0
    ]


def share_bound_by(diagnosis: Diagnosis, bound: str) -> float:
    """The largest share of the device's time that products with one kind of bound may take.

    Products whose bound is not known count as well. 1.0 where no calls are known.
    """
    total = sum(row.ns for row in diagnosis.ops)
    if total <= 0:
        return 1.0
    times = [
        row.ns
        for row in diagnosis.ops
        if row.bound in (bound, None) and any(word in row.op.lower() for word in PRODUCT_WORDS)
    ]
    return sum(times) / total


def worth(bound: str) -> Callable[[Diagnosis], str]:
    """A function that says why fewer bits can't pay, by the share of the step in products with the right bound."""

    def says(diagnosis: Diagnosis) -> str:
        share = share_bound_by(diagnosis, bound)
        if share >= applying.WORTH_TRYING:
            return ""
        return f"{bound}-bound products take {units.percent(share)} of the device's time"

    return says


def in_fewer_bits(config: Callable[[], Any]) -> Any:
    """Applies a torchao configuration to the weights of `linears`."""

    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        if "weights" not in kept:
            kept["weights"] = [(linear, _quantized(linear, config)) for linear in linears(workload)]
        with ExitStack() as stack:
            for linear, weight in kept["weights"]:
                applying.swapped(stack, linear._parameters, "weight", weight)
            yield workload

    return apply


def _quantized(linear: Any, config: Callable[[], Any]) -> Any:
    """The quantized weight that torchao makes for a layer."""
    quantize = import_module("torchao.quantization").quantize_
    twin = copy.copy(linear)
    twin._parameters = dict(linear._parameters)
    try:
        quantize(twin, config())
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        raise refused(error) from error
    return twin._parameters["weight"]


def refused(error: Exception) -> NotApplicable:
    """torchao's error as the reason why a way can't be applied."""
    return NotApplicable(f"torchao refuses: {error_line(error)}")
