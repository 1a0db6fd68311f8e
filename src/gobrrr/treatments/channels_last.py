"""Keep images with their channels innermost in memory.

Convolutions on tensor cores work on [N, H, W, C]. In `channels_last` the shapes stay as they are and only the strides
change: the converters around each convolution vanish, and batch norm reads whole rows.

Replayed: of layout copies (M05) what the finding claims, as far as they are between NCHW and NHWC, or a processor's
convolutions on NCHW; of normalization (M03) batch norms whose channels lie outside take what the stored shares of the
roof say of such norms with the channels innermost, within two standard deviations of those. Of a convolution on a
fallback algorithm (C06) from nothing to its high end, for that layer alone, in the order that it does not have now.

An operation without such a kernel returns the usual order and brings the converters back. Grouped convolutions can be
slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr.analysis.detect.copies import reordered
from gobrrr.analysis.detect.norms import innermost_ns, outside, own_norms
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_calls, of_claim
from gobrrr.analysis.savings.gains import Effect, Plan
from gobrrr.model.diagnosis import Finding
from gobrrr.model.events import I8
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import MODEL, Unfit, Way
from gobrrr.treatments.framework.wording import changed_inputs, changed_model, said, where

NAME = "channels-last"
NUMERICS = "rounding"
CODE = """
model = model.to(memory_format=torch.channels_last)
images = images.to(memory_format=torch.channels_last)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's claim."""
    finding = found.finding
    if finding.code == "C06":
        assumes = "the other order has a better kernel"
        return of_claim(evidence, found, _other_order(finding), assumes, least=0.0, better=True)
    assumes = "every operation between keeps the order"
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
    return Plan(_how(evidence), f"{assumes}; batch norms as fast as measured ones", _turned(evidence, norms))


def _how(evidence: Evidence) -> str:
    change = "{}.to(memory_format=torch.channels_last)"
    return "\n".join([changed_model(evidence, change), *changed_inputs(evidence, change, dimensions=4)])


def _turned(evidence: Evidence, norms: I8) -> Effect:
    """Batch norms in as long as their like take with the channels innermost; longer ones than now stay as they are."""
    length = evidence.calls.ns[norms]
    quick, expected, slow = (np.nan_to_num(one, nan=np.inf) for one in innermost_ns(evidence, norms))
    least, middle, most = (np.maximum(length - one, 0.0) for one in (slow, expected, quick))
    early, late = (of_calls(evidence, norms, *pair, better=True) for pair in ((least, middle), (middle, most)))
    return lambda share: early(2.0 * share) if share < 0.5 else late(2.0 * share - 1.0)


def _other_order(finding: Finding) -> str:
    """The layer of a convolution's cliff in the order that it does not have now: which one is tried, not told."""
    module = finding.where[0].module if finding.where else None
    of = f"{module}, this layer alone" if module else "this layer alone"
    other = "torch.contiguous_format where it is torch.channels_last, else torch.channels_last"
    return said(f"the other memory format for {of}: {other}", where(finding))


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """Model, optimizer state and images in the other order, in place."""
    import torch

    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    found = applying.modules_of(workload, kinds)
    if not found:
        yield Unfit(NAME, applying.of_model(workload, "the model has no 2-d convolutions"))
    elif workload.loader is not None and workload.step is not None:
        yield Unfit(NAME, "the images come from a loader into a step of its own: change their order there")
    elif all(_last(one.weight) for one in found if one.weight.shape[1] > 1):
        yield Unfit(NAME, "it is in this order already")
    else:
        yield Way(
            name=NAME, treatment=NAME, apply=_apply, code=CODE.strip(), numerics="rounding", rank=MODEL, as_if=(NAME,)
        )  # fmt: skip


def _last(tensor: Any) -> bool:
    import torch

    return bool(tensor.is_contiguous(memory_format=torch.channels_last))


def _images(tree: Any) -> Any:
    """The same inputs with what has four dimensions in the other order."""
    import torch

    return applying.mapped(
        tree, lambda one: one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one
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
    applying.forgotten(kept, [part for one, beside in found for part in (one, *beside)])
    with ExitStack() as stack:
        for one, beside in found:
            stack.callback(_made_meanwhile, workload, one, [id(part) for part in beside], one.stride())
            for part in (one, *beside):
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
    """What the optimizer and the backward made in the other order, in the parameter's."""
    import torch

    state = {} if workload.optimizer is None else workload.optimizer.state
    for part in (parameter.grad, *state.get(parameter, {}).values()):
        if _alike(part, parameter) and id(part) not in known and part.stride() != strides:
            part.data = torch.empty_strided(part.shape, strides, dtype=part.dtype, device=part.device).copy_(part)
