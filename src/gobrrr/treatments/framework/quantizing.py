"""Layers in fewer bits, by torchao where it is installed: swapped in place, and the own ones back afterwards."""

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
from gobrrr.treatments.framework.way import Unapplied

ALIGNED = 16
"""What both dimensions of a product of 8 bits are multiples of."""

PRODUCTS = ("mm", "linear", "matmul", "gemm", "scaled_mm")


def installed() -> bool:
    """Whether torchao is there."""
    return find_spec("torchao") is not None


def linears(workload: Workload) -> list[Any]:
    """The layers whose product has dimensions that fit, each once."""
    import torch

    found = applying.modules_of(workload, torch.nn.Linear)
    return [
        one
        for one in found
        if type(one) is torch.nn.Linear and one.in_features % ALIGNED == 0 and one.out_features % ALIGNED == 0
    ]


def share_bound_by(diagnosis: Diagnosis, bound: str) -> float:
    """The largest share of the device's time that may be in products whose roof is of one kind.

    A product whose roof is not known counts: nothing says that it is another. 1.0 where no calls are known.
    """
    total = sum(row.ns for row in diagnosis.ops)
    if total <= 0:
        return 1.0
    mine = [
        row.ns
        for row in diagnosis.ops
        if row.bound in (bound, None) and any(word in row.op.lower() for word in PRODUCTS)
    ]
    return sum(mine) / total


def worth(bound: str) -> Callable[[Diagnosis], str]:
    """Says why fewer bits can't pay, by what the products of the step are bound by."""

    def says(diagnosis: Diagnosis) -> str:
        share = share_bound_by(diagnosis, bound)
        if share >= applying.WORTH_TRYING:
            return ""
        return f"products that are bound by {bound} take {units.percent(share)} of the device's time"

    return says


def in_fewer_bits(config: Callable[[], Any]) -> Any:
    """The way to apply a torchao configuration to the weights of `linears`."""

    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        if "weights" not in kept:
            kept["weights"] = [(linear, _quantized(linear, config)) for linear in linears(workload)]
        with ExitStack() as stack:
            for one, weight in kept["weights"]:
                applying.swapped(stack, one._parameters, "weight", weight)
            yield workload

    return apply


def _quantized(linear: Any, config: Callable[[], Any]) -> Any:
    """The weight that torchao makes of a layer's."""
    quantize = import_module("torchao.quantization").quantize_
    twin = copy.copy(linear)
    twin._parameters = dict(linear._parameters)
    try:
        quantize(twin, config())
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        line = (str(error).strip().splitlines() or [""])[0]
        raise Unapplied(f"torchao refuses: {line}"[:200]) from error
    return twin._parameters["weight"]
