"""Do not ask nn.MultiheadAttention for its weights.

`need_weights` is True by default: the module then writes the scores as a tensor of [batch, heads, S, S'], takes their
softmax, averages it over the heads and returns it, whether or not it is used. With `need_weights=False` it calls
`scaled_dot_product_attention`.

Predicted: what the finding claims, from its low to its high end: the step time that the scores cost.

`nn.TransformerEncoderLayer` passes False already.
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
from gobrrr.treatments.framework.way import ATTENTION, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import said, where

NAME = "need-weights-false"
NUMERICS = "rounding"
CODE = """
y, _ = attention(..., need_weights=False)  # its other arguments stay as they are
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake."""
    finding = found.finding
    if finding.code != "M02" or NAME not in finding.treatments:
        return None
    how = said("need_weights=False among the arguments of this call of nn.MultiheadAttention", where(finding))
    return of_claim(evidence, found, how, "nothing reads the weights that it returns")


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Passes need_weights=False to every nn.MultiheadAttention whose caller does not set it."""
    import torch

    quiet = (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
    asked = {id(part) for module in applying.modules_of(workload, quiet) for part in module.modules()}
    found = [module for module in applying.modules_of(workload, torch.nn.MultiheadAttention) if id(module) not in asked]
    if not found:
        yield UnfitWay(NAME, applying.of_model(workload, "the model calls no nn.MultiheadAttention itself"))
        return
    yield TreatmentWay(
        name=NAME,
        treatment=NAME,
        apply=_apply,
        code=CODE.strip(),
        numerics="rounding",
        rank=ATTENTION,
        as_if=(NAME,),
    )


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    import torch

    with ExitStack() as stack:
        for module in applying.modules_of(workload, torch.nn.MultiheadAttention):
            applying.patched(stack, module, "forward", _without(module.forward))
        yield workload


NEED_WEIGHTS_POSITION = 4
"""The position of `need_weights` among the arguments of forward."""


def _without(forward: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= NEED_WEIGHTS_POSITION:
            kwargs.setdefault("need_weights", False)
        return forward(*args, **kwargs)

    return asked
