"""Use scaled_dot_product_attention, which never writes the scores.

Flash, cuDNN or memory-efficient kernels compute softmax(q k^T) v block by block on the chip: the passes over the S x S'
scores disappear, the matmuls run at the tensor cores' rate, and memory falls by the scores that the backward pass would
keep.

Predicted: what the finding claims, from its low to its high end: the passes over the scores at the low end, and also
the matmuls' distance from their peak at the high end, each only as far as the step waits for the device. In a
launch-bound step that is nothing.

Under `torch.compile` a mask that is a tensor (a library builds one where it can't look at the values while tracing) may
decompose the call into the math form, in float32: pass `is_causal` or no mask, or restrict the call to the fused
kernels with `sdpa_kernel`, so that it says why they do not take it.

A dense mask excludes flash attention; head sizes over 256, dropout and float32 restrict the choice of kernels. Dropout
draws other masks. `torch.nn.attention.sdpa_kernel` shows and sets which kernel runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from gobrrr import units
from gobrrr.analysis.detect.flagged_masks import FlaggedMask, flagged_masks
from gobrrr.analysis.detect.math_attention import heads_a_group, math_form
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.diagnosis import Diagnosis, Finding
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import ATTENTION, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import line, place, where

NAME = "sdpa"
NUMERICS = "rounding"
CODE = """
# the mask and the scale that you have: is_causal=True, or attn_mask=mask (True: is seen); default scale: 1/sqrt(d)
y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The step time that written scores cost, or that a mask costs which a flag could replace."""
    finding = found.finding
    if finding.code == "M12":
        first = next(iter(flagged_masks(evidence)), None)
        return (
            None if first is None else of_claim(evidence, found, _unmasked(first), "the fastest kernel takes the call")
        )
    if finding.code != "M02":
        return None
    called = math_form(evidence, found.claim.unit[found.claim.unit < len(evidence.calls)])
    if called is not None:
        return of_claim(evidence, found, _fused(evidence, called, finding), "a fused kernel takes the call then")
    mask = ", attn_mask=mask" if _masks(evidence, found) else ""
    code = f"y = torch.nn.functional.scaled_dot_product_attention(q, k, v{mask})"
    how = line(code, where(finding), "is_causal=True for a causal mask, True in a mask is seen" if mask else "")
    return of_claim(evidence, found, how, "a fused kernel takes the mask and the head size")


def _unmasked(mask: FlaggedMask) -> str:
    """The call without its mask."""
    flag, why = ("", "hides nothing") if mask.share == 1.0 else (", is_causal=True", "hides what is_causal hides")
    code = f"y = torch.nn.functional.scaled_dot_product_attention(q, k, v{flag})"
    return line(code, place(mask.use.source), f"the mask {why}")


def _fused(evidence: Evidence, row: int, finding: Finding) -> str:
    """Code that lets a call of the function take a fused kernel."""
    shared = heads_a_group(evidence, row)
    if shared > 1:
        code = f"k, v = (one.repeat_interleave({shared}, dim=-3) for one in (k, v))"
        return line(code, where(finding), "no fused kernel takes these groups of heads: without enable_gqa")
    code = "with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):"
    return line(code, where(finding), "warns why no fused kernel takes the call")


MASKING = ("masked_fill", "where", "tril", "triu")
"""Words in the calls that mask scores."""


def _masks(evidence: Evidence, found: ClaimedFinding) -> bool:
    """Whether the attention that was found leaves scores out."""
    calls = found.claim.unit[found.claim.unit < len(evidence.calls)]
    names = {evidence.group_of(call).call.name for call in calls.tolist()}
    return any(word in name for word in MASKING for name in names)


FIRST_KERNELS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
"""The kernels that may be tried first, and torch's names for them."""

ATTENTION_CALL_WORDS = (
    "scaled_dot_product",
    "attention_forward",
    "attention_backward",
    "flash",
    "fmha",
    "efficient_attention",
)
"""Words in the names of calls that choose between those kernels."""

FLOAT32_OPERAND = re.compile(r"\[[^\]]*\] float32")
"""Matches the first operand of a call, as the table of operations shows it, where it is float32."""


CUDNN_FIRST = 9
"""From this compute capability on torch tries cuDNN first, whose kernel is up to 75 % faster than FlashAttention 2 on
an H100 (https://pytorch.org/blog/pytorch2-5)."""


WRITTEN_OUT = "the model has no switch for it: change attention that is written out in the source"
"""Why no switch is tried."""


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """The library's switch for attention that is written out, and the kernel that a call of the function tries first.

    For attention written out in the user's own source there is only advice: no switch changes it.
    """
    configs = _written_out(workload)
    if configs:
        code = 'model.set_attn_implementation("sdpa")'
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=_switched(configs), code=code, numerics="rounding", rank=ATTENTION,
            as_if=(NAME,), conflicts=frozenset({"need-weights-false"}),
        )  # fmt: skip
    else:
        yield UnfitWay(NAME, applying.of_model(workload, WRITTEN_OUT))
    for name, kernel in FIRST_KERNELS.items():
        if not applying.on_cuda(workload):
            yield UnfitWay(f"{NAME}:{name}-first", "on a CPU there is one fused kernel only")
        elif "set_priority" not in _signature():
            yield UnfitWay(f"{NAME}:{name}-first", "this torch can't order the kernels")
        else:
            order = [kernel, *(other for other in FIRST_KERNELS.values() if other != kernel), "MATH"]
            listed = ", ".join(f"SDPBackend.{backend}" for backend in order)
            yield TreatmentWay(
                name=f"{NAME}:{name}-first", treatment=NAME, apply=applying.entered(_ordering(order)),
                code="from torch.nn.attention import SDPBackend, sdpa_kernel\n\n"
                "# where the model is compiled: torch's cache does not know the kernel (pytorch issue 185449)\n"
                "torch._functorch.config.enable_autograd_cache = False\n"
                f"with sdpa_kernel([{listed}], set_priority=True):  # around your step\n    step(batch)",
                numerics="rounding", rank=ATTENTION, worth=_worth(name, cudnn_first=_asks_cudnn_first()),
                conflicts=frozenset(f"{NAME}:{other}-first" for other in FIRST_KERNELS if other != name),
            )  # fmt: skip


def _asks_cudnn_first() -> bool:
    import torch

    return (
        torch.cuda.is_available() and torch.version.hip is None and torch.cuda.get_device_capability()[0] >= CUDNN_FIRST
    )


def _signature() -> Any:
    from torch.nn.attention import sdpa_kernel

    return inspect.signature(sdpa_kernel).parameters


def _ordering(order: list[str]) -> Any:
    @contextmanager
    def context(workload: Workload) -> Iterator[None]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with _no_cached_choice(), sdpa_kernel([getattr(SDPBackend, backend) for backend in order], set_priority=True):
            yield

    return context


def _no_cached_choice() -> AbstractContextManager[Any]:
    """Keeps code that is compiled with an order of kernels out of the compiler's cache.

    The cache's key does not hold the order (https://github.com/pytorch/pytorch/issues/185449): the kernel that was
    chosen when a model was first compiled would run here, and the other way round.
    """
    try:
        from torch._functorch import config
    except ImportError:
        return nullcontext()
    if not hasattr(config, "enable_autograd_cache"):
        return nullcontext()
    return config.patch(enable_autograd_cache=False)  # type: ignore[no-any-return]


def _worth(kernel: str, *, cudnn_first: bool = False) -> Any:
    """Says why trying a kernel first can't pay: attention takes little, the kernel runs already, or it does not take
    float32. `cudnn_first`: torch prefers cuDNN's kernel on this device."""

    def worth(diagnosis: Diagnosis) -> str:
        share = applying.share_of(diagnosis, *ATTENTION_CALL_WORDS)
        if share <= 0:
            return "no call of scaled_dot_product_attention in the step"
        if share < applying.WORTH_TRYING:
            return f"attention takes {units.percent(share)} of the device's time"
        calls = [row for row in diagnosis.ops if any(word in row.op.lower() for word in ATTENTION_CALL_WORDS)]
        if calls and all(f"{kernel}_attention" in call.op for call in calls):
            return "its calls run on that kernel already"
        if cudnn_first and calls and all("cudnn_attention" in call.op for call in calls):
            return (
                "its calls run on cuDNN's kernel, which torch prefers here for its speed (pytorch.org/blog/pytorch2-5)"
            )
        if kernel != "efficient" and calls and all(FLOAT32_OPERAND.match(call.shapes or "") for call in calls):
            return "its calls are in float32, which that kernel does not take"
        return ""

    return worth


def _written_out(workload: Workload) -> list[Any]:
    """The configurations of a transformers model that ask for attention written out, where the model also supports
    SDPA; none where weights are to be returned, which only the written-out form does."""
    module = applying.module_of(workload)
    if module is None:
        return []
    found: list[Any] = []
    for part in module.modules():
        config = getattr(part, "config", None)
        if getattr(config, "_attn_implementation", None) != "eager" or any(config is seen for seen in found):
            continue
        if getattr(part, "_supports_sdpa", True) is not True or getattr(config, "output_attentions", False):
            return []
        found.append(config)
    return found


def _switched(configs: list[Any]) -> Any:
    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        with ExitStack() as stack:
            for config in configs:
                # the setter of transformers' property would also change the configurations of parts
                internal = "_attn_implementation_internal"
                name = internal if internal in vars(config) else "_attn_implementation"
                applying.patched(stack, config, name, "sdpa")
            yield workload

    return apply
