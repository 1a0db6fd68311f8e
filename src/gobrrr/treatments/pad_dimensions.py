"""Pad a matmul's odd dimension to a multiple of 64.

Where 16 bytes divide each row, the library takes its usual kernels. Pad the weight once, where it is made; a few
columns more cost nothing beside that.

Replayed: what the finding claims, from its low to its high end: the padded matmul at the share of the peak that the
trace's aligned ones reach at the high end, at two thirds of it at the low end.

Padded logits must not take part: cut them off, or mask them. Checkpoints hold the padded shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import MODEL, Unfit, Way
from gobrrr.treatments.framework.wording import said, where

NAME = "pad-dimensions"
NUMERICS = "rounding"
HOW = "pad the dimension to a multiple of 64, where the weight is made"
CODE = """
head = torch.nn.Linear(width, -(-vocabulary // 64) * 64)  # a weight that is loaded: padded with zeros
logits = head(x)[..., :vocabulary]
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "C02":
        return None
    assumes = "the padded matmul gets the kernels of the aligned ones"
    return of_claim(evidence, found, said(HOW, where(finding)), assumes, better=True)


WIDE, NARROW = 64, 8
"""What a dimension is padded to a multiple of: the wide one where that adds little, else what 16 bytes of the types
of 16 bit hold."""

LITTLE, MOST = 1.1, 1.25
"""A dimension grows by no more than this: the product takes as much longer."""


def padded(size: int) -> int:
    """A dimension's size in the product; its own where it is aligned, or padding would add too much."""
    if size % NARROW == 0:
        return size
    wide, narrow = -(-size // WIDE) * WIDE, -(-size // NARROW) * NARROW
    if wide <= LITTLE * size:
        return wide
    return narrow if narrow <= MOST * size else size


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """The products of nn.Linear with padded operands, cut to size again: exact but for rounding.

    The weights stay what they are, tied ones too: they are padded as the product is made. What that costs is measured
    with what it gives.
    """
    found = _odd(workload)
    if not found:
        yield Unfit(NAME, applying.of_model(workload, "no nn.Linear has an odd dimension that is worth padding"))
        return
    listed = [f"{name}: ({one.in_features}, {one.out_features})" for name, one in found]
    yield Way(
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
        (name, one)
        for name, one in (module.named_modules() if module is not None else ())
        if type(one) is torch.nn.Linear
        and (padded(one.in_features), padded(one.out_features)) != (one.in_features, one.out_features)
    ]


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    with ExitStack() as stack:
        for _, one in _odd(workload):
            applying.patched(stack, one, "forward", _forward(one))
        yield workload


def _forward(linear: Any) -> Callable[..., Any]:
    """The layer's product with zeros in the odd places. Without gradients the padded weight is kept until it changes;
    with them it is a part of the graph, whose backward cuts the gradient."""
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
        parts = [one for one in (linear.weight, linear.bias) if one is not None]
        mark = [(part.data_ptr(), part.dtype, part._version) for part in parts]
        if had.get("mark") != mark:
            had.update(mark=mark, made=made())
        return had["made"]  # type: ignore[no-any-return]

    def forward(x: Any) -> Any:
        weight, bias = operands()
        given = functional.pad(x, (0, columns)) if columns else x
        return functional.linear(given, weight, bias)[..., :size]

    return forward
