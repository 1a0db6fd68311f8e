"""Keep the activations: no checkpointing, or less of it.

Switch it off where everything fits into memory. Otherwise checkpoint every other block, or selectively: keep the
results of matmuls and attention, and compute pointwise operations again. With `torch.compile` the activation memory
budget sets how much may be kept. The numbers stay the same, except for random numbers that are drawn in another order.

Predicted: what the finding claims, from its low to its high end: the device time of recomputed operations and the time
to issue them. Where the peak memory is not known the low end is nothing, because the activations may not fit; all of it
is expected if they do.

Measure the peak afterwards (`torch.cuda.max_memory_allocated`): the budget limits saved activations, not the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.savings.effects import of_claim, sooner
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.diagnosis import Finding
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, reaching
from gobrrr.treatments.framework.way import REMATERIALISATION, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import after, line, model_of, said, where, written_at

NAME = "no-checkpoint"
NUMERICS = "none"
HOW = "call the blocks without torch.utils.checkpoint.checkpoint; where memory is too small, checkpoint every other one"
CODE = """
x = block(x)  # instead of torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
model.gradient_checkpointing_disable()  # transformers
torch._functorch.config.activation_memory_budget = 0.5  # with torch.compile: sweep it
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake; from nothing where the peak memory is not known."""
    finding = found.finding
    if finding.code != "R01":
        return None
    least = 1.0 if finding.certainty == "high" else 0.0
    return sooner(
        of_claim(evidence, found, _how(evidence, finding), "the activations then fit into memory", least=least)
    )


def _how(evidence: Evidence, finding: Finding) -> str:
    """The library's own switch for a transformers model, else a comment."""
    model = program_of(evidence).model
    if model is not None and model.kind.startswith("transformers."):
        return line(f"{model_of(evidence)}.gradient_checkpointing_disable()", after(written_at(model.written)))
    return said(HOW, where(finding))


FLAG = "gradient_checkpointing"
"""The attribute by which modules of transformers switch checkpointing on."""


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Switches off transformers' flags and distributed wrappers, and makes `checkpoint` call its function directly."""
    flagged = _flagged(workload)
    if not applying.trains(workload) and workload.step is None:
        yield UnfitWay(NAME, f"{applying.NO_BACKWARD}: nothing is computed again")
    elif not flagged and not any(_asks(code) for code in reaching.code_of(workload)) and not _wrapped(workload):
        yield UnfitWay(NAME, "the step does not call torch.utils.checkpoint")
    else:
        code = "model.gradient_checkpointing_disable()" if flagged else CODE.strip().splitlines()[0]
        yield TreatmentWay(
            name=NAME,
            treatment=NAME,
            apply=_apply,
            code=code,
            numerics="none",
            rank=REMATERIALISATION,
            as_if=(NAME,),
            conflicts=frozenset({"checkpoint", "activation-budget"}),
        )


def _flagged(workload: Workload) -> list[Any]:
    return [module for module in applying.modules_of(workload) if getattr(module, FLAG, False) is True]


def _wrapped(workload: Workload) -> list[Any]:
    """torch.distributed's checkpoint wrappers, each around one module."""
    return [module for module in applying.modules_of(workload) if hasattr(module, "_checkpoint_wrapped_module")]


def _asks(code: Any) -> bool:
    return any(name in ("checkpoint", "checkpoint_sequential") for name in code.co_names)


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    from torch.utils.checkpoint import checkpoint

    with ExitStack() as stack:
        for wrapper in _flagged(workload):
            applying.patched(stack, wrapper, FLAG, False)
        for wrapper in _wrapped(workload):
            applying.patched(stack, wrapper, "forward", wrapper._checkpoint_wrapped_module)
        reaching.everywhere(stack, workload, checkpoint, _straight, kept)
        yield workload


OWN_WORDS = ("use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop")
"""Keyword arguments that `checkpoint` does not pass on to the function."""


def _straight(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the function directly, with the arguments of `checkpoint`."""
    return function(*args, **{name: value for name, value in kwargs.items() if name not in OWN_WORDS})
