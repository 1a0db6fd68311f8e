"""Run matmuls and convolutions in bfloat16 under autocast.

Twice the rate of TF32 and half the bytes; weights, norms, softmax and losses stay float32. For inference cast the
module once: autocast does not cache casts of weights that need no gradient.

Replayed: each float32 contraction at the 16-bit peak, at the least with the gain of TF32, at the most with the same
share of the peak as now up to half of it; the host launches one cast more for each of their operands. What stands
behind contractions and keeps the type that it is given (batch norm, activations, pooling) moves half of its float32
bytes, as bf16-cast has it.

What runs as TF32 is no fault, and no finding prescribes this then; asked for, it takes half of their floors' share.

For single float32 contractions in a model of 16 bit (C03) it is the finding's own interval: their operands are cast.

It gives nothing in a launch-bound step, where the casts make it slower. float16 needs a gradient scaler; bfloat16
does not.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gobrrr.analysis.claims import Found
from gobrrr.analysis.compiled import is_compiled
from gobrrr.analysis.effects import all_of, claimed, of_calls, of_claim
from gobrrr.analysis.elsewhere import in_type, typed_ratios
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Effect, Plan
from gobrrr.analysis.narrower import half_behind_contractions
from gobrrr.analysis.path import launch_call_ns, path_of
from gobrrr.analysis.program import device_of, program_of
from gobrrr.analysis.what_if import burdened, unchanged
from gobrrr.fitted import constant
from gobrrr.model.events import I8
from gobrrr.model.work import Tensor
from gobrrr.model.workload import Workload
from gobrrr.treatments import applying
from gobrrr.treatments.way import PRECISION, Unfit, Way
from gobrrr.treatments.wording import line, model_of, said, where, written_at

NAME = "bf16-autocast"
NUMERICS = "rounding"
CAST_CALLS = constant("cast")
"""What the host needs to cast an operand, without the profiler, in durations of a launch call as recorded."""

MOST_OPERANDS = 3
"""Tensors of a contraction: two factors and what is added."""

CODE = """
with torch.autocast("cuda", dtype=torch.bfloat16):  # or "cpu": where the model is
    loss = loss_fn(model(x), y)
loss.backward()
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """Contractions at the 16-bit peak, bounded by a host that launches the casts as well."""
    finding = found.finding
    if finding.code == "C03":
        how = said("these operands in the model's own type, or inside its autocast", where(finding))
        return of_claim(evidence, found, how, "nothing in front of them needs float32's range")
    if finding.code != "C01":
        return None
    contractions = np.array([group.work.matrix_dtype == "float32" for group in evidence.priced.groups], dtype=bool)
    casts = _casting(evidence, evidence.calls_where(contractions))
    typed = in_type(evidence, "bfloat16")
    effect = all_of(
        lambda _: typed,
        claimed(evidence, found, better=True),
        *_traffic(evidence),
        casts,
    )
    return Plan(_around(evidence), "the operands of contractions are cast; bfloat16 is accurate enough", effect)


def _around(evidence: Evidence) -> str:
    """The program's own lines from the model's call to the loss, under autocast."""
    forward = program_of(evidence).forward
    head = f'with torch.autocast("{device_of(evidence)}", dtype=torch.bfloat16):'
    if forward is not None and forward.text is not None:
        return f"{line(head, written_at(forward))}\n{textwrap.indent(forward.text, INDENT)}"
    model, told = model_of(evidence), written_at(forward) or "your own forward and loss"
    called = f"loss = loss_fn({model}(x), y)" if evidence.training else f"y = {model}(x)"
    return f"{line(head, told)}\n{INDENT}{called}"


INDENT = " " * 4


def _traffic(evidence: Evidence) -> list[Effect]:
    halved = None if evidence.on_cpu else half_behind_contractions(evidence)
    return [] if halved is None else [halved]


def _casting(evidence: Evidence, calls: I8) -> Effect:
    """The host casts each float32 operand of some contractions; on a CPU the claim has it."""
    if evidence.on_cpu:
        return lambda _: unchanged
    casts = np.array([operands(one.call.tensors) for one in evidence.priced.groups] or [0], dtype=np.float64)
    ns = casts[evidence.calls.group[calls]] * cast_ns(evidence)
    return lambda _: lambda graph: burdened(graph, evidence.calls.first[calls], ns)


def operands(tensors: Sequence[Tensor]) -> int:
    """What autocast casts of a contraction's arguments: two factors, and a sum's third. A backward pass computes with
    what was cast, and undoes each cast."""
    return min(sum(one.dtype == "float32" for one in tensors), MOST_OPERANDS)


def cast_ns(evidence: Evidence) -> float:
    """What the host needs to cast a tensor; nothing where a compiler fuses casts into what it generates anyway."""
    if is_compiled(evidence):
        return 0.0
    call = launch_call_ns(evidence)
    return CAST_CALLS * call if call is not None else path_of(evidence).host_per_launch


def unasked(evidence: Evidence) -> Plan | None:
    """Contractions that run as TF32, which no condition calls a fault: in 16 bit they take half of their floor.

    At the least half of that saving; a host that launches one cast more for each operand.
    """
    if evidence.on_cpu:
        return None
    ratio = typed_ratios(evidence, "bfloat16", "tf32")[evidence.calls.group]
    calls = np.flatnonzero(np.isfinite(ratio) & (ratio < 1.0))
    if not len(calls):
        return None
    less = evidence.calls.ns[calls] * (1.0 - ratio[calls])
    shorter = of_calls(evidence, calls, less / 2, less, better=True)
    effect = all_of(shorter, *_traffic(evidence), _casting(evidence, calls))
    return Plan(_around(evidence), "contractions run as TF32 now; bfloat16 is accurate enough", effect)


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """Autocast around forward and loss; around all of a step that is a callable of the user's."""
    module = applying.module_of(workload)
    kind = applying.device_of(workload)
    if kind not in ("cuda", "cpu"):
        yield Unfit(NAME, f"not known on {kind}")
    elif module is not None and not any(
        one.dtype.itemsize == 4 for one in module.parameters() if one.is_floating_point()
    ):
        yield Unfit(NAME, "the model has no float32 parameters")
    else:
        inner = "loss = step(batch)" if workload.step is not None else "loss = loss_fn(model(x), y)"
        backward = "" if workload.step is not None or workload.loss is None else "\nloss.backward()"
        if workload.step is None and workload.loss is None:
            inner = "y = model(x)"
        yield Way(
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
