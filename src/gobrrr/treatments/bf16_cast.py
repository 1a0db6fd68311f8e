"""Cast the model to bfloat16 for inference.

Weights, activations and results are bfloat16: matmuls and convolutions run at twice the rate of TF32, and every tensor
has half the bytes. Autocast casts weights that need no gradient again in every call; a model that is cast once does
not, and its norms, softmax and pointwise operations move half of their bytes too.

Predicted: each float32 contraction runs at the 16-bit peak. The low end is the gain of TF32; the high end keeps the
share of the peak that it has now, up to half of the peak. Other memory-bound operations move half of their float32
bytes: at the high end in half of the time, at the low end they save a quarter of their time at the roof.

For inference only: a bfloat16 weight loses any update that is smaller than 1/256 of it. Buffers are cast as well; what
needs float32 (the frequencies of a rotary embedding, running statistics) has to be kept in float32 by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.contractions import beside
from gobrrr.analysis.savings.effects import all_of, claimed, sooner
from gobrrr.analysis.savings.elsewhere import in_type
from gobrrr.analysis.savings.gains import Effect, TreatmentPlan
from gobrrr.analysis.savings.narrower import half_the_bytes
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import MODEL, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import changed_inputs, changed_model

NAME = "bf16-cast"
NUMERICS = "rounding"
ASSUMES = "bfloat16 is accurate enough; memory-bound operations move half of their float32 bytes"
CODE = """
model = model.to(torch.bfloat16)
y = model(x.to(torch.bfloat16))
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """Contractions at the 16-bit peak; none for a step that trains."""
    if found.finding.code != "C01" or evidence.training:
        return None
    typed = in_type(evidence, "bfloat16")
    effects: list[Effect] = [
        lambda _: typed,
        claimed(evidence, found, better=True),
        *beside(evidence, found.claim.unit),
        *_traffic(evidence),
    ]
    plan = TreatmentPlan(_how(evidence), ASSUMES, all_of(*effects))
    # no casts within the step: only the peaks decide
    return plan if evidence.device.narrow_is_faster else sooner(plan)


def _how(evidence: Evidence) -> str:
    change = "{}.to(torch.bfloat16)"
    return "\n".join([changed_model(evidence, change), *changed_inputs(evidence, change)])


def unasked(evidence: Evidence) -> TreatmentPlan | None:
    """Contractions that no finding reports, as for autocast but without its casts, and operations that move float32.

    None for a step that trains, and on a CPU, where pointwise operations in bfloat16 need not be faster.
    """
    if evidence.training or not evidence.device.narrow_is_faster:
        return None
    effects = [*beside(evidence), *_traffic(evidence)]
    return TreatmentPlan(_how(evidence), ASSUMES, all_of(*effects)) if effects else None


def _traffic(evidence: Evidence) -> list[Effect]:
    halved = half_the_bytes(evidence) if evidence.device.narrow_is_faster else None
    return [] if halved is None else [halved]


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Casts the model's own parameters and buffers in place, and the inputs."""
    import torch

    module = applying.module_of(workload)
    if module is None:
        yield UnfitWay(NAME, applying.of_model(workload, "its model is not an nn.Module"))
    elif applying.goes_back(workload):
        yield UnfitWay(NAME, "the step trains: bfloat16 weights lose small updates")
    elif not any(parameter.dtype == torch.float32 for parameter in module.parameters()):
        yield UnfitWay(NAME, "the model has no float32 parameters")
    elif workload.loader is not None and workload.step is not None:
        yield UnfitWay(NAME, "the loader's batches go into the workload's own step: cast them there")
    else:
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=_apply, code=CODE.strip(), numerics="rounding", rank=MODEL,
            as_if=(NAME,), conflicts=frozenset({"bf16-autocast"}),
        )  # fmt: skip


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    import torch

    module = applying.module_of(workload)
    if "inputs" not in kept:
        kept["inputs"] = cast(tuple(workload.inputs))
    with ExitStack() as stack:
        for parameter in [*module.parameters(), *module.buffers()]:
            if parameter.dtype == torch.float32:
                applying.borrowed(stack, parameter, _like, kept, back=False)
        if workload.loader is not None:
            hook = module.register_forward_pre_hook(lambda _, args: cast(args))
            stack.callback(hook.remove)
        yield replace(workload, inputs=kept["inputs"])


def _like(tensor: Any) -> Any:
    import torch

    return torch.empty_like(tensor, dtype=torch.bfloat16)


def cast(tree: Any) -> Any:
    """The same inputs with their float32 tensors in bfloat16."""
    import torch

    return applying.mapped(tree, lambda tensor: tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor)
