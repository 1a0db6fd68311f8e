"""Drop the gradients instead of filling them with zeros.

`optimizer.zero_grad(set_to_none=False)` writes zeros into every gradient, and the backward pass then adds to them:
three passes over the gradients, and their launches. With None, the default since torch 2.0, the backward pass writes
new gradients.

Predicted: nothing; the time for zeroing is listed among the step's calls (`zero_`, `_foreach_zero_`).

A parameter that takes no part in a step then has no gradient, and the optimizer leaves it alone; with zeros, momentum
and weight decay still change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, reaching
from gobrrr.treatments.framework.way import OPTIMIZER, TreatmentWay, UnfitWay

NAME = "set-to-none"
NUMERICS = "none"
CODE = """
optimizer.zero_grad(set_to_none=True)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """None: no finding is about zeroing."""
    return None


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Replaces `zero_grad` of the optimizer and the model, where the step asks for zeros."""
    if workload.optimizer is None and applying.module_of(workload) is None:
        yield UnfitWay(NAME, "neither the step's nn.Module nor its optimizer is known: a gobrrr.Workload names them")
    elif not any("zero_grad" in code.co_names and _zeros(code) for code in reaching.code_of(workload)):
        yield UnfitWay(NAME, "the step does not ask for zeros, and None is the default")
    else:
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=_apply, code=CODE.strip(), numerics="none", rank=OPTIMIZER, worth=_worth
        )  # fmt: skip


def _zeros(code: Any) -> bool:
    """Whether a piece of code passes `set_to_none` and has a False to pass."""
    return "set_to_none" in reaching.keywords_of(code) and any(constant is False for constant in code.co_consts)


def _worth(diagnosis: Diagnosis) -> str:
    share = applying.share_of(diagnosis, "zero_")
    return "" if share >= applying.WORTH_TRYING else "writing zeros takes next to nothing of the step"


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    with ExitStack() as stack:
        for owner in (workload.optimizer, applying.module_of(workload)):
            if owner is not None:
                applying.patched(stack, owner, "zero_grad", _none(owner))
        yield workload


def _none(owner: Any) -> Any:
    dropped = owner.zero_grad
    return lambda set_to_none=True: dropped(set_to_none=True)
