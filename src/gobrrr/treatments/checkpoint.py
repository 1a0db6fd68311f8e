"""Compute activations again in the backward pass instead of keeping them.

Each repeated block keeps only its input; its forward runs again when the backward pass needs its activations. The
memory for activations falls to about that of one block. The step takes the time of one more forward pass of the blocks:
a third more where nothing else counts. It pays through what then fits into memory: a larger batch, or the step at all.

Predicted: nothing; it makes no step shorter. `no-checkpoint` is the opposite treatment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import REMATERIALISATION, TreatmentWay, UnfitWay

NAME = "checkpoint"
NUMERICS = "none"
CODE = """
from torch.utils.checkpoint import checkpoint

x = checkpoint(block, x, use_reentrant=False)  # instead of block(x), for each of the repeated blocks
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """None: it saves memory, not time."""
    return None


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Checkpoints each of the model's repeated blocks."""
    blocks = applying.repeated_blocks(applying.module_of(workload))
    if not blocks:
        yield UnfitWay(NAME, applying.of_model(workload, "the model has no repeated blocks"))
    elif not applying.goes_back(workload):
        yield UnfitWay(NAME, f"{applying.NO_BACKWARD}: no activations are kept")
    else:
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=_apply, code=CODE.strip(), numerics="none", rank=REMATERIALISATION,
            conflicts=frozenset({"no-checkpoint", "activation-budget"}), worth=applying.memory_is_short,
        )  # fmt: skip


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    with ExitStack() as stack:
        for repeated_block in applying.repeated_blocks(applying.module_of(workload)):
            applying.patched(stack, repeated_block, "forward", _again(repeated_block.forward))
        yield workload


def _again(forward: Callable[..., Any]) -> Callable[..., Any]:
    import torch
    from torch.utils.checkpoint import checkpoint

    def kept_by_its_inputs(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return kept_by_its_inputs
