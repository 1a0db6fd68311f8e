"""Let the compiler choose which activations to keep, within a memory budget.

`torch.compile` splits the joint graph into a forward and a backward part, and decides which activations it keeps and
which it computes again. With a budget of 1 it keeps whatever is cheapest in time; with 0 it keeps only the inputs of
the compiled region. In between it recomputes as little as it can while it stays within that share of the bytes.

Predicted: nothing; it saves memory, not time. Recomputed pointwise operations cost next to nothing, recomputed matmuls
cost their time. The peak memory need not follow the budget: measure it (`torch.cuda.max_memory_allocated`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments import compile
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import COMPILER, TreatmentWay, UnfitWay

NAME = "activation-budget"
NUMERICS = "rounding"
BUDGET = 0.5
"""The share of the activations' bytes that may be kept in a trial. Chosen, not measured."""
CODE = """
torch._functorch.config.activation_memory_budget = 0.5  # sweep it: 0 to 1
model = torch.compile(model)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """None: it saves memory, not time."""
    return None


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Compiles the model with half of the activations kept."""
    whole = next(way for way in compile.ways(workload) if way.name == compile.NAME)
    if isinstance(whole, UnfitWay):
        yield UnfitWay(NAME, whole.why)
    elif not applying.goes_back(workload):
        yield UnfitWay(NAME, f"{applying.NO_BACKWARD}: no activations are kept")
    else:
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=_apply(whole), code=CODE.strip(), numerics="rounding", rank=COMPILER,
            conflicts=frozenset({compile.NAME, "checkpoint", "no-checkpoint"}), compiles=True,
            worth=applying.memory_is_short,
        )  # fmt: skip


def _apply(whole: TreatmentWay) -> Any:
    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        from torch._functorch import config

        # torch reads it when it compiles the backward, in the first step
        with config.patch(activation_memory_budget=BUDGET), whole.apply(workload, kept) as treated:
            yield treated

    return apply
