"""Let the compiler choose which activations are kept, within a budget.

With `torch.compile` the partitioner of forward and backward decides what is kept and what is computed again. At a
budget of 1 it keeps what costs least; at 0 nothing but the inputs of the compiled region; between it solves for the
least to compute again that stays within that share of the bytes.

Replayed: nothing; it saves memory, not time. Pointwise operations that are computed again cost next to nothing,
matmuls cost their time. The peak of the memory need not follow the budget: measure it
(`torch.cuda.max_memory_allocated`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import Plan
from gobrrr.model.workload import Workload
from gobrrr.treatments import compile
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import COMPILER, Unfit, Way

NAME = "activation-budget"
NUMERICS = "rounding"
BUDGET = 0.5
CODE = """
torch._functorch.config.activation_memory_budget = 0.5  # sweep it: 0 to 1
model = torch.compile(model)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """None: it saves memory, not time."""
    return None


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """The model compiled with half of the activations."""
    whole = next(way for way in compile.ways(workload) if way.name == compile.NAME)
    if isinstance(whole, Unfit):
        yield Unfit(NAME, whole.why)
    elif not applying.goes_back(workload):
        yield Unfit(NAME, f"{applying.NO_BACKWARD}: no activations are kept")
    else:
        yield Way(
            name=NAME, treatment=NAME, apply=_apply(whole), code=CODE.strip(), numerics="rounding", rank=COMPILER,
            conflicts=frozenset({compile.NAME, "checkpoint", "no-checkpoint"}), compiles=True,
            worth=applying.memory_is_short,
        )  # fmt: skip


def _apply(whole: Way) -> Any:
    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        from torch._functorch import config

        # it is read as the backward is compiled: at the first step
        with config.patch(activation_memory_budget=BUDGET), whole.apply(workload, kept) as treated:
            yield treated

    return apply
