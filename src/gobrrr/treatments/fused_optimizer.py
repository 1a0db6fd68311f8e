"""Let the optimizer update all parameters in a few launches.

The fused form makes the whole update of many parameters in one kernel; the foreach form makes each operation of the
update for many parameters in one kernel. The numbers differ by rounding at most.

Predicted: all updates of a step are one launch. On the device that takes the present kernels' time less that of empty
kernels (1 us each) at the low end, and one pass over the parameters without launch and ramp (2 us each) at the high
end. The host's operations for the other launches disappear, at the high end with the Python between them. On a CPU it
is what the finding claims.

An Adam that updates its parameters in lists, as torch does by default on a GPU, has no finding. Asked for by name, or
tried, the fused form is expected to make one pass and one launch instead of several.

On a GPU very large parameters gain little: their kernels are memory-bound in every form.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.optimizers import FUSED_PASSES, lists_of_adam
from gobrrr.analysis.host.program import device_of, optimizer_of
from gobrrr.analysis.savings.effects import of_claim, perhaps
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import as_one_launch
from gobrrr.model.program import ProgramObject
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, reaching
from gobrrr.treatments.framework.way import OPTIMIZER, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import OTHER_ARGUMENTS_NOTE, after, line, made_with, said, written_at

NAME = "fused-optimizer"
NUMERICS = "rounding"
CODE = """
# where the optimizer is made, beside its other arguments; AdamW stands for yours
optimizer = torch.optim.AdamW(..., fused=True)  # or foreach=True, where yours has no fused form
"""
FUSED_ON = {"SGD": ("cuda", "cpu"), "Adam": ("cuda", "cpu"), "AdamW": ("cuda", "cpu"), "Adagrad": ("cpu",)}
"""The devices on which torch's optimizers have a fused form, in every supported version of torch."""
FOREACH = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
)  # fmt: skip
"""Optimizers of torch.optim with a foreach form."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """One launch for all updates of a step; one pass over the parameters where there is a fused form."""
    if found.finding.code != "O03" or NAME not in found.finding.treatments:
        return None
    optimizer = optimizer_of(evidence)
    if optimizer is None:
        form, how, assumes = FUSED_FORM, said(UNKNOWN_OPTIMIZER_ADVICE), "the optimizer has a fused form"
    else:
        form = _form(optimizer.base, device_of(evidence))
        how, assumes = _how(optimizer, form), ASSUMES[form].format(optimizer.base)
    if not evidence.device.asynchronous:
        return _within_calls(evidence, found, how, assumes, form)
    effect = as_one_launch(evidence, evidence.updates.work, FUSED_PASSES if form == FUSED_FORM else 1.0)
    return TreatmentPlan(how, assumes, effect if form else perhaps(effect))


def unasked(evidence: Evidence) -> TreatmentPlan | None:
    """The fused form of an Adam that updates its parameters in lists on a GPU: one pass instead of several."""
    optimizer, lists = optimizer_of(evidence), lists_of_adam(evidence)
    if not evidence.device.asynchronous or not len(lists):
        return None
    how = _how(optimizer, FUSED_FORM) if optimizer is not None else said(UNKNOWN_OPTIMIZER_ADVICE)
    whole = as_one_launch(evidence, lists, FUSED_PASSES)
    return TreatmentPlan(how, ASSUMES[FUSED_FORM], lambda share: whole(min(2 * share, 1.0)))


FUSED_FORM, FOREACH_FORM = "fused", "foreach"
"""The forms of an update, by the names of their arguments."""
ASSUMES = {
    FUSED_FORM: "its gradients are dense",
    FOREACH_FORM: "its gradients are dense; there is no fused form of {} on this device",
    "": "low: the optimizer has neither a fused nor a foreach form",
}
"""What the prediction assumes, by the form of the update."""


def _form(base: str | None, device: str) -> str:
    """The better form that a class of torch.optim has on a device; "" where none is known."""
    if device in FUSED_ON.get(base or "", ()):
        return FUSED_FORM
    return FOREACH_FORM if base in FOREACH else ""


def _within_calls(evidence: Evidence, found: ClaimedFinding, how: str, assumes: str, form: str) -> TreatmentPlan:
    """On a CPU: what the finding claims. Only the fused form also removes the loop over the parameters."""
    if form == FUSED_FORM:
        return of_claim(evidence, found, how, assumes)
    claim = found.claim
    between = claim.unit >= len(evidence.calls)
    alone = replace(claim, unit=claim.unit[between], ns=claim.ns[between], low=claim.low[between])
    return of_claim(evidence, replace(found, claim=alone), how, assumes, least=1.0 if form else 0.0)


UNKNOWN_OPTIMIZER_ADVICE = "your optimizer: fused=True or foreach=True among its arguments, where it takes one of them"
"""Advice where the program's optimizer is not known."""


def _how(optimizer: ProgramObject, form: str) -> str:
    """The line that makes the optimizer, changed; where that line is not known, code that sets the form in its
    groups."""
    if not form:
        name = optimizer.name or "optimizer"
        return line(f"{name}.step = torch.compile({name}.step)", f"no other form of {optimizer.kind} is known")
    other = FOREACH_FORM if form == FUSED_FORM else FUSED_FORM
    own = optimizer.kind not in (optimizer.base, f"torch.optim.{optimizer.base}")
    whole = None if own else made_with(optimizer, {form: "True"}, without=[other])
    if whole is not None:
        return whole
    if optimizer.name is not None:
        at = after(written_at(optimizer.written))
        return in_groups(optimizer.name, form, other, at or "before its first step")
    return line(f"optimizer = torch.optim.{optimizer.base}(..., {form}=True)", OTHER_ARGUMENTS_NOTE)


def in_groups(name: str, form: str, other: str, note: str) -> str:
    """Code that sets the form of an existing optimizer."""
    return f"{line(f'for group in {name}.param_groups:', note)}\n    group.update({form}=True, {other}=False)"


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """The fused form, and the foreach form, of the workload's own optimizer."""
    names = (NAME, f"{NAME}:foreach")
    why = _unknown(workload) or _unfit(workload.optimizer) or _sparse(workload)
    if why:
        yield from (UnfitWay(name, why) for name in names)
        return
    groups = workload.optimizer.param_groups
    kind, device = _kind(workload.optimizer).__name__, str(groups[0]["params"][0].device.type)
    why = _unfused(workload.optimizer, kind, device)
    yield UnfitWay(NAME, why) if why else _way(NAME, workload, fused=True)
    if any(group.get("foreach") for group in groups):
        why = "it has the foreach form already"
    elif any(group.get("fused") for group in groups):
        why = "it has the fused form already"
    elif device == "cuda" and all(group.get("foreach") is None for group in groups):
        why = "torch uses the foreach form by default on CUDA"
    elif "foreach" not in inspect.signature(_kind(workload.optimizer)).parameters:
        why = f"{kind} has no foreach form"
    yield UnfitWay(names[1], why) if why else _way(names[1], workload, fused=False)


def _way(name: str, workload: Workload, *, fused: bool) -> TreatmentWay:
    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        with ExitStack() as stack:
            _switch(stack, workload.optimizer, fused=fused)
            yield workload

    in_vain = not fused and str(workload.optimizer.param_groups[0]["params"][0].device.type) == "cpu"
    return TreatmentWay(
        name=name, treatment=NAME, apply=apply, code=_code(workload, fused=fused), numerics="rounding",
        rank=OPTIMIZER, as_if=() if in_vain else (NAME,), worth=(lambda _: NOT_ON_CPU) if in_vain else None,
    )  # fmt: skip


NOT_ON_CPU = "on a CPU the foreach form runs the same operations, one parameter after another"
"""Why the foreach form is not tried on a CPU."""


def _code(workload: Workload, *, fused: bool) -> str:
    """The code to paste; it keeps the constructor's other arguments and the groups."""
    form, other = (FUSED_FORM, FOREACH_FORM) if fused else (FOREACH_FORM, FUSED_FORM)
    optimizer = workload.optimizer
    made = reaching.made_of(workload, optimizer, optimizer.defaults)
    asked = any(group.get(other) for group in optimizer.param_groups)
    in_call = optimizer.defaults.get(other) and made.written is not None
    if type(optimizer) is _kind(optimizer) and (in_call or not asked):
        return _how(made, form)
    return in_groups(made.name or "optimizer", form, other, "before its first step, and before a state is loaded")


def _switch(stack: ExitStack, optimizer: Any, *, fused: bool) -> None:
    """Sets the form in the optimizer's groups, and moves the step counters to the device where that form needs them."""
    for name in ("_step_supports_amp_scaling", "_need_device_dtype_check_for_fused"):
        if fused or name in vars(optimizer):
            applying.patched(stack, optimizer, name, fused)
    for group in optimizer.param_groups:
        applying.swapped(stack, group, "foreach", not fused)
        if "fused" in group:
            applying.swapped(stack, group, "fused", fused)
    before = {parameter: state["step"] for parameter, state in optimizer.state.items() if _counts(state)}
    stack.callback(_counters_back, optimizer, before)
    for parameter in before if fused else ():
        optimizer.state[parameter]["step"] = applying.counter_on(before[parameter], parameter.device)


def _counts(state: Any) -> bool:
    import torch

    return isinstance(state.get("step"), torch.Tensor)


def _counters_back(optimizer: Any, before: dict[Any, Any]) -> None:
    """Puts each step counter back into its own tensor, and new counters where the optimizer creates them by itself."""
    captured = {tensor for group in optimizer.param_groups if group.get("capturable") for tensor in group["params"]}
    for parameter, state in optimizer.state.items():
        if not _counts(state):
            continue
        if parameter in before:
            state["step"] = before[parameter].copy_(state["step"])
        elif parameter not in captured:
            state["step"] = applying.counter_on(state["step"], "cpu")


def _kind(optimizer: Any) -> Any:
    """The class of torch.optim whose step this optimizer runs."""
    return next(
        (kind for kind in type(optimizer).__mro__ if kind.__module__.startswith("torch.optim")), type(optimizer)
    )


def _unknown(workload: Workload) -> str:
    """Why there is no optimizer to change; "" where there is one."""
    if workload.optimizer is not None:
        return ""
    if workload.step is None:
        return "the workload has no optimizer"
    return "which optimizer the step runs is not known: return a gobrrr.Workload with optimizer="


def _unfit(optimizer: Any) -> str:
    """Why the form of the optimizer's update can't be chosen; "" where it can."""
    import torch

    if not isinstance(optimizer, torch.optim.Optimizer):
        return f"{type(optimizer).__name__} is not an optimizer of torch.optim"
    if not getattr(type(optimizer).step, "__module__", "").startswith("torch.optim"):
        return f"{type(optimizer).__name__} overrides step"
    if any("foreach" not in group for group in optimizer.param_groups):
        return f"{type(optimizer).__name__} has one form only"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return "a differentiable optimizer has one form only"
    return ""


def _unfused(optimizer: Any, kind: str, device: str) -> str:
    groups = optimizer.param_groups
    if any(group.get("fused") for group in groups):
        return "the optimizer is fused already"
    if "fused" not in inspect.signature(_kind(optimizer)).parameters or kind not in FUSED_ON:
        return f"{kind} has no fused form"
    if device not in FUSED_ON[kind]:
        return f"{kind} has no fused form on {device}"
    parameters = [parameter for group in groups for parameter in group["params"]]
    if not all(parameter.is_floating_point() for parameter in parameters):
        return "the fused form takes only floating-point parameters"
    if len({parameter.device for parameter in parameters}) > 1:
        return "its parameters are on several devices"
    return ""


def _sparse(workload: Workload) -> str:
    embeddings = [module for module in applying.modules_of(workload) if getattr(module, "sparse", False) is True]
    parameters = [parameter for group in workload.optimizer.param_groups for parameter in group["params"]]
    if embeddings or any(parameter.grad is not None and parameter.grad.is_sparse for parameter in parameters):
        return "its gradients are sparse"
    return ""
