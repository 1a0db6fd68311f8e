"""Store images with their channels innermost in memory.

Tensor cores convolve [N, H, W, C]. In `channels_last` the shapes stay the same and only the strides change: the layout
conversions around each convolution disappear, and batch norm reads whole rows.

Predicted: for layout copies (M05), the part of the finding's claim between NCHW and NHWC, or of a CPU's convolutions on
NCHW. For normalization (M03), batch norms over outer channels take the time that batch norms over innermost channels
were measured to take, within two standard deviations. For a convolution on a fallback algorithm (C06), from nothing to
the high end, for that layer alone, in the memory format that it does not have now.

An operation without a channels-last kernel returns the default layout and brings the conversions back. Grouped
convolutions can be slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr.analysis.detect.copies import reordered
from gobrrr.analysis.detect.norms import innermost_ns, outside, own_norms
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_calls, of_claim
from gobrrr.analysis.savings.gains import Effect, TreatmentPlan
from gobrrr.model.diagnosis import Finding
from gobrrr.model.events import I8
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import MODEL, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import changed_inputs, changed_model, said, where

NAME = "channels-last"
NUMERICS = "rounding"
CODE = """
model = model.to(memory_format=torch.channels_last)
images = images.to(memory_format=torch.channels_last)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The part of the finding's claim that channels-last changes."""
    finding = found.finding
    if finding.code == "C06":
        assumes = "a better kernel exists for the other memory format"
        return of_claim(evidence, found, _other_order(finding), assumes, least=0.0, better=True)
    assumes = "every operation in between keeps the memory format"
    if finding.code == "M05":
        share = reordered(evidence).image_share(evidence)
        return (
            of_claim(evidence, found, _how(evidence), assumes, least=share, most=share, better=True)
            if share > 0
            else None
        )
    if finding.code != "M03":
        return None
    own = own_norms(evidence)
    norms = own[outside(evidence, own)]
    if not len(norms):
        return None
    return TreatmentPlan(_how(evidence), f"{assumes}; batch norms as fast as measured ones", _turned(evidence, norms))


def _how(evidence: Evidence) -> str:
    change = "{}.to(memory_format=torch.channels_last)"
    return "\n".join([changed_model(evidence, change), *changed_inputs(evidence, change, dimensions=4)])


def _turned(evidence: Evidence, norms: I8) -> Effect:
    """Batch norms take as long as measured ones with innermost channels; none gets longer than now."""
    length = evidence.calls.ns[norms]
    quick, expected, slow = (np.nan_to_num(times, nan=np.inf) for times in innermost_ns(evidence, norms))
    least, middle, most = (np.maximum(length - then, 0.0) for then in (slow, expected, quick))
    early, late = (of_calls(evidence, norms, *pair, better=True) for pair in ((least, middle), (middle, most)))
    return lambda share: early(2.0 * share) if share < 0.5 else late(2.0 * share - 1.0)


def _other_order(finding: Finding) -> str:
    """The other memory format for the layer of a slow convolution; a trace does not say which one it has now."""
    module = finding.where[0].module if finding.where else None
    of = f"{module}, this layer alone" if module else "this layer alone"
    other = "torch.contiguous_format where it is torch.channels_last, else torch.channels_last"
    return said(f"the other memory format for {of}: {other}", where(finding))


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Converts the model, the optimizer state and the images to channels_last, in place."""
    import torch

    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    found = applying.modules_of(workload, kinds)
    if not found:
        yield UnfitWay(NAME, applying.of_model(workload, "the model has no 2-d convolutions"))
    elif workload.loader is not None and workload.step is not None:
        yield UnfitWay(NAME, "the loader's images go into the workload's own step: convert them there")
    elif all(_last(layer.weight) for layer in found if layer.weight.shape[1] > 1):
        yield UnfitWay(NAME, "the model is in channels_last already")
    else:
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=_apply, code=CODE.strip(), numerics="rounding", rank=MODEL, as_if=(NAME,)
        )  # fmt: skip


def _last(tensor: Any) -> bool:
    import torch

    return bool(tensor.is_contiguous(memory_format=torch.channels_last))


def _images(tree: Any) -> Any:
    """The same inputs with their four-dimensional tensors in channels_last."""
    import torch

    return applying.mapped(
        tree, lambda tensor: tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
    )


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    module = applying.module_of(workload)
    state = {} if workload.optimizer is None else workload.optimizer.state
    if "inputs" not in kept:
        kept["inputs"] = _images(tuple(workload.inputs)), _images(tuple(workload.targets))
    found = [
        (parameter, [part for part in (parameter.grad, *state.get(parameter, {}).values()) if _alike(part, parameter)])
        for parameter in [*module.parameters(), *module.buffers()]
        if parameter.dim() == 4
    ]
    applying.forgotten(kept, [part for parameter, beside in found for part in (parameter, *beside)])
    with ExitStack() as stack:
        for parameter, beside in found:
            stack.callback(_made_meanwhile, workload, parameter, [id(part) for part in beside], parameter.stride())
            for part in (parameter, *beside):
                applying.borrowed(stack, part, _reordered, kept, back=True)
        inputs, targets = kept["inputs"]
        treated = replace(workload, inputs=inputs, targets=targets)
        if workload.loader is not None:
            first = module.register_forward_pre_hook(lambda _, args: _images(args))
            stack.callback(first.remove)
        yield treated


def _alike(part: Any, parameter: Any) -> bool:
    return bool(getattr(part, "shape", None) == parameter.shape)


def _reordered(tensor: Any) -> Any:
    import torch

    return torch.empty_like(tensor, memory_format=torch.channels_last)


def _made_meanwhile(workload: Workload, parameter: Any, known: list[int], strides: tuple[int, ...]) -> None:
    """Restores the parameter's own strides on gradients and state that were created while it was applied."""
    import torch

    state = {} if workload.optimizer is None else workload.optimizer.state
    for part in (parameter.grad, *state.get(parameter, {}).values()):
        if _alike(part, parameter) and id(part) not in known and part.stride() != strides:
            part.data = torch.empty_strided(part.shape, strides, dtype=part.dtype, device=part.device).copy_(part)
