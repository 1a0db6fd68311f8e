"""Do not ask nn.MultiheadAttention for its weights.

`need_weights` is True by default: the module then makes the scores as a tensor of [batch, heads, S, S'], takes their
softmax, averages it over the heads and returns it, whether anybody looks at it or not. With `need_weights=False` it
calls `scaled_dot_product_attention`.

Replayed: what the finding claims, from its low to its high end: what the scores cost on the wall.

`nn.TransformerEncoderLayer` already passes False.
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
from gobrrr.treatments.framework.way import ATTENTION, Unfit, Way
from gobrrr.treatments.framework.wording import said, where

NAME = "need-weights-false"
NUMERICS = "rounding"
CODE = """
y, _ = attention(..., need_weights=False)  # its other arguments stay as they are
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "M02" or NAME not in finding.treatments:
        return None
    how = said("need_weights=False among the arguments of this call of nn.MultiheadAttention", where(finding))
    return of_claim(evidence, found, how, "nothing reads the weights that it returns")


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """Every nn.MultiheadAttention that is called without a word on its weights is asked for none."""
    import torch

    quiet = (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
    asked = {id(part) for module in applying.modules_of(workload, quiet) for part in module.modules()}
    found = [module for module in applying.modules_of(workload, torch.nn.MultiheadAttention) if id(module) not in asked]
    if not found:
        yield Unfit(NAME, applying.of_model(workload, "the model has no nn.MultiheadAttention of its own"))
        return
    yield Way(
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


AT = 4
"""The place of `need_weights` among the arguments."""


def _without(forward: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= AT:
            kwargs.setdefault("need_weights", False)
        return forward(*args, **kwargs)

    return asked
