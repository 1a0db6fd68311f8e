"""Update a list of tensors with one operation.

`torch._foreach_lerp_`, `_foreach_mul_`, `_foreach_add_` and similar functions take lists: a few launches for all
tensors of a type, and one pass through Python and the dispatcher. For averages of weights `torch.optim.swa_utils` has
`get_ema_multi_avg_fn`; metrics can be stacked into one tensor and added once.

Predicted: what the finding claims: half of the idle time before the updates at the low end, all of it at the high end.

Functions named `_foreach_` are not part of torch's stable interface. Large tensors gain nothing: they are memory-bound.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.update_loops import update_loops
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.diagnosis import Finding
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, reaching
from gobrrr.treatments.framework.way import OPTIMIZER, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import line, said, where

NAME = "foreach"
NUMERICS = "rounding"
CODE = """
torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.001)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """One launch for all updates of a step."""
    if found.finding.code != "O11":
        return None
    how = _how(evidence, found.finding)
    return of_claim(evidence, found, how, "the updates do not depend on each other")


LISTED = {
    "lerp_": "torch._foreach_lerp_(averages, values, weight)",
    "mul_": "torch._foreach_mul_(averages, decay)",
    "add_": "torch._foreach_add_(averages, values, alpha=1 - decay)",
    "sub_": "torch._foreach_sub_(tensors, others)",
    "div_": "torch._foreach_div_(tensors, others)",
    "copy_": "torch._foreach_copy_(copies, values)",
    "zero_": "torch._foreach_zero_(tensors)",
    "mul": "results = torch._foreach_mul(tensors, factor)",
    "add": "results = torch._foreach_add(tensors, others)",
    "div": "results = torch._foreach_div(tensors, others)",
}
"""The list form of an update that goes tensor by tensor, by the operation of the update."""

MEAN = LISTED["lerp_"]
"""The list form of `a * decay + b * (1 - decay)`."""


def _how(evidence: Evidence, finding: Finding) -> str:
    """The operations of the longest loop, each as one call for all tensors."""
    loops = sorted(update_loops(evidence), key=lambda update_loop: -len(update_loop.rows))
    times = Counter(loops[0].names) if loops else Counter()
    if set(times) == {"mul", "add"} and times["mul"] == 2 * times["add"]:
        return line(MEAN, where(finding), "lists of all the tensors; where the two weights add up to 1")
    ops = [op for op in times if op in LISTED] if loops else ["lerp_"]
    if not ops:
        return said("torch._foreach_...: one operation for the lists of all tensors", where(finding))
    return "\n".join(line(LISTED[op], where(finding), "lists of all the tensors, for the loop") for op in ops)


CLIPS = ("clip_grad_norm_", "clip_grad_value_")
"""Functions of torch.nn.utils that clip gradients and take `foreach`."""


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Clipping, and averages of weights by swa_utils; averages in the user's own source are advice."""
    clips, averages = _clips(workload), _averages(workload)
    if not clips and not averages:
        yield UnfitWay(
            NAME, "no clipping with foreach=False, and no swa_utils.AveragedModel that updates tensor by tensor"
        )
        return
    code = [f"torch.nn.utils.{name}(..., foreach=True)" for name in clips]
    if averages:
        code.append("averaged = AveragedModel(..., multi_avg_fn=get_ema_multi_avg_fn(decay))  # instead of avg_fn")
    yield TreatmentWay(
        name=NAME, treatment=NAME, apply=_apply, code="\n".join(code), numerics="rounding", rank=OPTIMIZER,
        as_if=(NAME,),
    )  # fmt: skip


def _clips(workload: Workload) -> list[str]:
    """The clipping functions that the step calls tensor by tensor: with foreach=False, or on a CPU."""
    cuda, found = applying.on_cuda(workload), []
    for code in reaching.code_of(workload):
        if not cuda or "foreach" in reaching.keywords_of(code):
            found += [name for name in CLIPS if name in code.co_names]
    return list(dict.fromkeys(found))


def _averages(workload: Workload) -> list[tuple[Any, float]]:
    """Models of swa_utils that average tensor by tensor with `get_ema_avg_fn`, each with its decay."""
    from torch.optim.swa_utils import AveragedModel

    found = []
    for thing in reaching.reached(workload):
        if isinstance(thing, AveragedModel) and getattr(thing, "multi_avg_fn", None) is None:
            own = inspect.unwrap(thing.avg_fn) if thing.avg_fn is not None else None
            if own is not None and own.__qualname__.startswith("get_ema_avg_fn."):
                found.append((thing, inspect.getclosurevars(own).nonlocals["decay"]))
    return found


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    from torch.nn import utils
    from torch.optim.swa_utils import get_ema_multi_avg_fn

    with ExitStack() as stack:
        for name in _clips(workload):
            own = getattr(utils, name)
            reaching.everywhere(stack, workload, own, _together(own), kept.setdefault(name, {}))
        for averaged, decay in _averages(workload):
            applying.patched(stack, averaged, "avg_fn", None)
            applying.patched(stack, averaged, "multi_avg_fn", get_ema_multi_avg_fn(decay))
        yield workload


def _together(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def clipped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{**kwargs, "foreach": True})

    return clipped
