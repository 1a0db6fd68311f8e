"""Run matmuls and convolutions in bfloat16 under autocast.

bfloat16 has twice the rate of TF32 and half the bytes; weights, norms, softmax and losses stay in float32. For
inference, cast the module once instead: autocast does not cache casts of weights that need no gradient.

Predicted: each float32 contraction runs at the 16-bit peak. The low end is the gain of TF32; the high end keeps the
share of the peak that it has now, up to half of the peak. The host launches one more cast for each operand. Operations
behind a contraction that keep the type of their input (batch norm, activations, pooling) move half of their float32
bytes, as with bf16-cast.

Contractions that run as TF32 are not a fault, and no finding prescribes this treatment for them. Asked for by name, it
saves half of the time that their floors take. Small products that run outside the tensor cores, and that no finding
reports, are expected to follow the peaks.

For single float32 contractions in a 16-bit model (C03) the prediction is the finding's own interval: their operands are
cast.

It gains nothing in a launch-bound step, where the additional casts make the step slower. float16 needs a gradient
scaler; bfloat16 does not.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import launch_call_ns, path_of
from gobrrr.analysis.host.program import device_of, program_of
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.replay.fitted import by_name
from gobrrr.analysis.replay.what_if import burdened, unchanged
from gobrrr.analysis.savings.contractions import beside
from gobrrr.analysis.savings.effects import all_of, claimed, of_claim
from gobrrr.analysis.savings.elsewhere import in_type
from gobrrr.analysis.savings.gains import EXPECTED_SHARE_OF_EFFECT, Effect, TreatmentPlan
from gobrrr.analysis.savings.narrower import half_behind_contractions
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import PRECISION, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import line, model_of, said, where, written_at

NAME = "bf16-autocast"
NUMERICS = "rounding"
INFERENCE_CAST_COST, TRAINING_CAST_COST = by_name("cast, inference"), by_name("cast, training")
"""Host time to cast an operand, without the profiler, as a multiple of a recorded launch call. In training half of the
casts are undone in the backward pass, where no Python runs, and a weight is cast once for all its uses."""

FLOAT32_UNITS = ("float32", "tf32")
"""The units on which contractions of float32 run."""

MOST_CAST_OPERANDS = 3
"""Tensors that autocast casts for one contraction: two factors and a summand."""

CODE = """
with torch.autocast("cuda", dtype=torch.bfloat16):  # or "cpu": where the model is
    loss = loss_fn(model(x), y)
loss.backward()
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """Contractions at the 16-bit peak, bounded by a host that launches the casts as well."""
    finding = found.finding
    if finding.code == "C03":
        how = said("cast these operands to the model's own type, or compute inside its autocast", where(finding))
        return of_claim(evidence, found, how, "nothing before them needs float32's range")
    if finding.code != "C01":
        return None
    typed = in_type(evidence, "bfloat16")
    effect = all_of(
        lambda _: typed,
        claimed(evidence, found, better=True),
        *beside(evidence, found.claim.unit),
        *_traffic(evidence),
        _casting(evidence),
    )
    return TreatmentPlan(
        _around(evidence), "the operands of contractions are cast; bfloat16 is accurate enough", effect
    )


def _around(evidence: Evidence) -> str:
    """The program's own lines from the model's call to the loss, under autocast."""
    forward = program_of(evidence).forward
    head = f'with torch.autocast("{device_of(evidence)}", dtype=torch.bfloat16):'
    if forward is not None and forward.text is not None:
        return f"{line(head, written_at(forward))}\n{textwrap.indent(forward.text, INDENT)}"
    model, note = model_of(evidence), written_at(forward) or "your own forward and loss"
    called = f"loss = loss_fn({model}(x), y)" if evidence.training else f"y = {model}(x)"
    return f"{line(head, note)}\n{INDENT}{called}"


INDENT = " " * 4


def _traffic(evidence: Evidence) -> list[Effect]:
    halved = half_behind_contractions(evidence) if evidence.device.narrow_is_faster else None
    return [] if halved is None else [halved]


def _casting(evidence: Evidence) -> Effect:
    """The host launches the casts of contractions' float32 operands; on a CPU the claim includes them."""
    casts = np.array(casts_of(evidence) or [0.0])[evidence.calls.group]
    calls = np.flatnonzero(casts > 0)
    if not evidence.device.asynchronous or not len(calls):
        return lambda _: unchanged
    first = evidence.calls.first[calls]
    return lambda share: lambda graph: burdened(graph, first, casts[calls] * cast_ns(evidence, share))


def casts_of(evidence: Evidence) -> list[float]:
    """How many tensors autocast casts for a call of each group: a contraction's two factors and its summand. A backward
    pass uses the cast tensors, and undoes each cast. Batch norms pass 16-bit tensors on to the next convolutions."""
    batches = any("batch_norm" in group.call.name for group in evidence.priced.groups)
    return [float(_operands(group, batches)) for group in evidence.priced.groups]


def _operands(group: CallGroup, batches: bool) -> int:
    if group.work.matrix_dtype not in FLOAT32_UNITS:
        return 0
    each = min(sum(tensor.dtype == "float32" for tensor in group.call.tensors), MOST_CAST_OPERANDS)
    return max(each - (batches and "convolution" in group.call.name), 0)


def cast_ns(evidence: Evidence, share: float = EXPECTED_SHARE_OF_EFFECT) -> float:
    """Host time to cast a tensor, in ns, at a share of the effect; the same in compiled code, where there is nothing to
    fuse a weight's cast with."""
    call = launch_call_ns(evidence)
    needed = (TRAINING_CAST_COST if evidence.training else INFERENCE_CAST_COST).needed(share)
    return needed * call if call is not None else path_of(evidence).host_per_launch


def unasked(evidence: Evidence) -> TreatmentPlan | None:
    """Contractions that no finding reports: those that run as TF32, or that a late host hides.

    The host launches one more cast for each operand.
    """
    if not evidence.device.narrow_is_faster or not any(casts_of(evidence)):
        return None
    effect = all_of(*beside(evidence), *_traffic(evidence), _casting(evidence))
    return TreatmentPlan(_around(evidence), "bfloat16 is accurate enough for these contractions", effect)


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Autocast around the forward pass and the loss; around the whole of a user's own step."""
    module = applying.module_of(workload)
    kind = applying.device_of(workload)
    if kind not in ("cuda", "cpu"):
        yield UnfitWay(NAME, f"known for cuda and cpu, not for {kind}")
    elif module is not None and not any(
        parameter.dtype.itemsize == 4 for parameter in module.parameters() if parameter.is_floating_point()
    ):
        yield UnfitWay(NAME, "the model has no float32 parameters")
    else:
        inner = "loss = step(batch)" if workload.step is not None else "loss = loss_fn(model(x), y)"
        backward = "" if workload.step is not None or workload.loss is None else "\nloss.backward()"
        if workload.step is None and workload.loss is None:
            inner = "y = model(x)"
        yield TreatmentWay(
            name=NAME,
            treatment=NAME,
            apply=_apply,
            code=f'with torch.autocast("{kind}", dtype=torch.bfloat16):  # around your own forward and loss\n'
            f"    {inner}{backward}",
            numerics="rounding",
            rank=PRECISION,
            as_if=(NAME,),
            conflicts=frozenset({"bf16-cast"}),
        )


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    import torch

    kind = applying.device_of(workload)
    yield applying.around(workload, lambda: torch.autocast(kind, torch.bfloat16))
