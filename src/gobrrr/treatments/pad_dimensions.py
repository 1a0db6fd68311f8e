"""Pad a matmul's odd dimension to a multiple of 64.

Where each row is a multiple of 16 bytes, the library takes its usual kernels. Pad the weight once, where it is made; a
few more columns cost next to nothing.

Predicted: what the finding claims, from its low to its high end: the padded matmul reaches the share of the peak that
the trace's aligned matmuls reach at the high end, and two thirds of it at the low end.

Padded logits must not count: cut them off, or mask them. Checkpoints then hold the padded shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import MODEL, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import said, where

NAME = "pad-dimensions"
NUMERICS = "rounding"
HOW = "pad the dimension to a multiple of 64, where the weight is made"
CODE = """
head = torch.nn.Linear(width, -(-vocabulary // 64) * 64)  # a weight that is loaded: padded with zeros
logits = head(x)[..., :vocabulary]
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake."""
    finding = found.finding
    if finding.code != "C02":
        return None
    assumes = "the padded matmul gets the kernels of the aligned ones"
    return of_claim(evidence, found, said(HOW, where(finding)), assumes, better=True)


WIDE_MULTIPLE, NARROW_MULTIPLE = 64, 8
"""Multiples to which a dimension is padded: the wide one where that adds little, else the number of 16-bit elements in
16 bytes."""

MOST_WIDE_GROWTH, MOST_NARROW_GROWTH = 1.1, 1.25
"""How many times as large a dimension may become with the wide and with the narrow multiple: the product grows by as
much. Chosen, not measured."""


def padded(size: int) -> int:
    """The padded size of a dimension; its own size where it is aligned, or where padding would add too much."""
    if size % NARROW_MULTIPLE == 0:
        return size
    wide, narrow = -(-size // WIDE_MULTIPLE) * WIDE_MULTIPLE, -(-size // NARROW_MULTIPLE) * NARROW_MULTIPLE
    if wide <= MOST_WIDE_GROWTH * size:
        return wide
    return narrow if narrow <= MOST_NARROW_GROWTH * size else size


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Pads the operands of each nn.Linear and cuts the result to size: exact except for rounding.

    The weights themselves, tied ones too, stay as they are: they are padded in each product, and the trial measures
    that cost as well.
    """
    found = _odd(workload)
    if not found:
        yield UnfitWay(NAME, applying.of_model(workload, "no nn.Linear has an odd dimension that is worth padding"))
        return
    listed = [f"{name}: ({layer.in_features}, {layer.out_features})" for name, layer in found]
    yield TreatmentWay(
        name=NAME,
        treatment=NAME,
        apply=_apply,
        code=f"{CODE.strip()}\n# {', '.join(listed[:4])}{' and others' if len(listed) > 4 else ''}",
        numerics="rounding",
        rank=MODEL,
        as_if=(NAME,),
    )


def _odd(workload: Workload) -> list[tuple[str, Any]]:
    import torch

    module = applying.module_of(workload)
    return [
        (name, layer)
        for name, layer in (module.named_modules() if module is not None else ())
        if type(layer) is torch.nn.Linear
        and (padded(layer.in_features), padded(layer.out_features)) != (layer.in_features, layer.out_features)
    ]


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    with ExitStack() as stack:
        for _, layer in _odd(workload):
            applying.patched(stack, layer, "forward", _forward(layer))
        yield workload


def _forward(linear: Any) -> Callable[..., Any]:
    """The layer's forward with operands padded by zeros. Without gradients the padded weight is cached until the weight
    changes; with gradients padding is part of the graph, whose backward cuts the gradient."""
    from torch.nn import functional

    size = linear.out_features
    columns, rows = padded(linear.in_features) - linear.in_features, padded(size) - size
    had: dict[str, Any] = {}

    def made() -> tuple[Any, Any]:
        weight, bias = linear.weight, linear.bias
        weight = functional.pad(weight, (0, columns, 0, rows))
        return weight, None if bias is None else functional.pad(bias, (0, rows))

    def operands() -> tuple[Any, Any]:
        import torch

        if torch.is_grad_enabled() or torch.compiler.is_compiling() or linear.weight.is_inference():
            return made()
        parts = [tensor for tensor in (linear.weight, linear.bias) if tensor is not None]
        mark = [(part.data_ptr(), part.dtype, part._version) for part in parts]
        if had.get("mark") != mark:
            had.update(mark=mark, made=made())
        return had["made"]  # type: ignore[no-any-return]

    def forward(x: Any) -> Any:
        weight, bias = operands()
        given = functional.pad(x, (0, columns)) if columns else x
        return functional.linear(given, weight, bias)[..., :size]

    return forward
