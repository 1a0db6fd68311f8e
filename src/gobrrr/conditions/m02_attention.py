"""Attention that writes its scores to memory: a matmul makes S x S' numbers a head, pointwise kernels pass over them.

The scores of 8 x 12 heads of 1024 x 1024 are 201 MB in bfloat16. Scaling, masking, softmax, dropout and the conversions
between them read and write them several times, forward and backward. A fused attention keeps them on the chip: only q,
k, v and the output go through memory.

## How it is recognised

A softmax (or its backward, or a Triton kernel with a softmax in it) over a tensor of [..., S, S'] with S >= 16 and
S' >= 64, with a batched matmul that reads a matrix of exactly this size among the twelve calls on each side of it. In
the same neighbourhood, pointwise calls and copies on a tensor of this shape and batched matmuls that write one count as
well. A softmax without such a matmul (a router, a classifier, a loss) is not attention.

In a model that mostly computes in 16 bit the matmuls may still run in float32, off the tensor cores: the math form of
`scaled_dot_product_attention` widens its operands, and a compiler uses it where the mask is a tensor. The evidence then
says so, and the conversions of q, k, v and the output count as well.

## What it costs

    cost (low)  = time of the softmax, pointwise calls and copies on the scores
                      + copies of q, k, v that the matmuls make: a fused kernel reads any strides
                      + time of the batched matmuls beyond their FLOPs at 15 % of the matrix peak
    cost (high) = that with the whole peak (a backward recomputes the scores: 5/4 of its FLOPs)
                      + conversions of the matmuls' other operands, and their copies into another order

On a CPU a fused kernel does the masking, scaling and exponentials too. With all of that it reached 28 to 46 % of the
float32 peak (8 pairs of shape and mask in float32, from 32 x [64, 32] to 8 x [512, 64], forward and backward, one
thread; torch 2.13 on an AMD EPYC):

    cost (low)  = time of all these calls - the matmuls' FLOPs (5/4 in a backward) at 25 % of the float32 peak
    cost (high) = the same at 50 %

The CPU's fused kernel was slower than 16-bit matmuls on matrix units, and it takes no dropout: in either case the low
end is 0. Blocks that a mask drops are not counted. For short sequences the saving comes out as 0.

The peak is that of the model's own element type. Fused attention reached 17 % of it (a backward) to 37 % in the shipped
H100 traces. Both are capped at W - host (step time minus host time): only time in which the step waits for the device
can be saved.

## What helps

- `torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)`: flash, cuDNN or memory-efficient kernels.
- `torch.compile`, which replaces the attention patterns it knows with the fused form, and fuses the passes of others.
- `flex_attention` (compiled) for masks and biases that the former do not take.
- Where `scaled_dot_product_attention` is called but no fused kernel takes the call: repeat keys and values for each
  head of their group instead of `enable_gqa=True`. Otherwise `sdpa_kernel` without `MATH` warns why no kernel takes it.
- `need_weights=False` for `nn.MultiheadAttention`, where the scores are averaged over the heads, which shows that it
  returns them; `attn_implementation="sdpa"` in Transformers.

It gives nothing in a launch-bound step and little for short sequences. A dense mask or an unusual head size falls back
to the form that materialises the scores.

## Sick

```python
scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
scores = scores.masked_fill(~mask, float("-inf"))
y = scores.softmax(-1) @ v
```

## Healthy

```python
y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
```
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.math_attention import MATH_ATTENTION, math_form
from gobrrr.analysis.events.ratios import rate
from gobrrr.analysis.findings.claims import F8, ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import output_of, tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.pricing.texts import shapes_text
from gobrrr.analysis.savings.contractions import low_precision, peak_of
from gobrrr.conditions.common import about_calls, by_signature, matrix_flop_of, places, short_op, unable
from gobrrr.cost.arguments import integers
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.events import I8

CODE = "M02"
TITLE = "attention scores written to memory"

LEAST_SCORE_ROWS, LEAST_SCORE_COLUMNS = 16, 64
"""Smaller score matrices are those of one decoded token (one row) or of a router (a few dozen experts)."""

NEIGHBOURHOOD = 12
"""Calls on each side of the softmax: scale, mask, conversions and dropout make up to eight between the matmuls."""

RECOMPUTED = 1.25
"""A fused backward computes the scores again: five matmuls instead of four (Dao et al. 2022, FlashAttention)."""

FUSED_SHARE = 0.15
"""Share of the matrix peak that a fused attention reaches at least: 0.17 is the least in the shipped H100 traces."""

CPU_FUSED_SHARES = (0.25, 0.5)
"""The least and the most share of the float32 peak of a CPU's fused attention, with softmax and masks, as measured."""

DROPOUT_OPERATIONS = ("dropout", "bernoulli")
"""Parts of the names of operations that drop attention weights."""

BATCHED_MATMULS = ("bmm", "baddbmm", "matmul", "baddbmm_")
"""Batched matmuls."""


@dataclass(frozen=True)
class Scores:
    """The shape of the scores: all elements, and the rows and columns of one matrix."""

    elements: int
    rows: int
    columns: int

    def is_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape holds all the scores."""
        return shape[-2:] == (self.rows, self.columns) and self._whole(shape)

    def is_operand(self, shape: tuple[int, ...]) -> bool:
        """Whether a matmul's operand of this shape holds all the scores, transposed or not."""
        return shape[-2:] in ((self.rows, self.columns), (self.columns, self.rows)) and self._whole(shape)

    def _whole(self, shape: tuple[int, ...]) -> bool:
        return len(shape) >= 3 and int(np.prod(shape, dtype=np.int64)) == self.elements


@dataclass(frozen=True)
class Attention:
    """Calls of the window that work on materialised scores."""

    passes: I8  # softmax, pointwise calls, copies
    matmuls: I8
    recomputed: frozenset[int]  # matmuls of a backward
    softmaxes: I8
    conversions: I8  # of q, k, v and the output, to and from the matmuls' element type
    layouts: I8  # copies of them into another order, which a fused kernel does not need

    @property
    def calls(self) -> I8:
        """All these calls."""
        return reduce(np.union1d, (self.passes, self.matmuls, self.conversions, self.layouts))


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Softmaxes between batched matmuls on a matrix of one size."""
    missing = unable(CODE, evidence)
    if missing or evidence.machine is None:
        return missing
    attention = find_attention(evidence)
    if not len(attention.softmaxes):
        return None
    ns = evidence.calls.ns
    bulk = low_precision(evidence)
    floor = np.array([_floor(evidence, call, attention, bulk) for call in attention.matmuls.tolist()])
    matmuls, conversions, layouts = ns[attention.matmuls], ns[attention.conversions], ns[attention.layouts]
    sure = np.where([_of_product(evidence, call) for call in attention.layouts.tolist()], layouts, 0.0)
    kept = np.maximum(matmuls - floor / FUSED_SHARE, 0.0)
    low = np.concatenate([ns[attention.passes], kept, np.zeros(len(conversions)), sure])
    high = np.concatenate([ns[attention.passes], np.maximum(matmuls - floor, 0.0), conversions, layouts])
    calls = np.concatenate([attention.passes, attention.matmuls, attention.conversions, attention.layouts])
    # two products and the passes between them become one kernel
    gone = np.concatenate([attention.passes, attention.matmuls[1::2], attention.layouts[sure > 0]])
    refused = _refused(evidence, attention)
    if not evidence.device.fused_attention:
        low, high = (ns[calls] * share for share in _on_processor(evidence, attention))
    if refused:
        low = np.zeros_like(low)
    return about_calls(
        evidence,
        CODE,
        TITLE,
        (calls, low, high),
        where=places(evidence, by_signature(evidence, attention.softmaxes)),
        gone=gone,
        treatments=_treatments(evidence, attention),
        facts=[
            *refused,
            *_facts(evidence, attention, floor),
            *_widened(evidence, attention),
            *_averaged(evidence, attention),
        ],
    )


def _on_processor(evidence: Evidence, attention: Attention) -> tuple[float, float]:
    """The least and the most share of the calls' time that a CPU's fused kernel saves: it does the same in one pass."""
    total = float(evidence.calls.ns[np.concatenate([attention.passes, attention.matmuls])].sum())
    works = [(call, evidence.group_of(call).work) for call in attention.matmuls.tolist()]
    flop = sum(
        (RECOMPUTED if call in attention.recomputed else 1.0) * (work.matrix_flop or 0.0) for call, work in works
    )
    peak = peak_of(evidence, "float64" if any(work.matrix_dtype == "float64" for _, work in works) else "float32")
    if peak is None or not total:
        return 0.0, 0.0
    slow, fast = (max(1.0 - flop / (share * peak) * 1e9 / total, 0.0) for share in CPU_FUSED_SHARES)
    narrow = any(work.matrix_dtype in ("bfloat16", "float16") for _, work in works)
    return 0.0 if narrow else slow, fast


def _refused(evidence: Evidence, attention: Attention) -> list[str]:
    """Why a CPU's fused kernel does not take this attention: it has none with dropout."""
    if evidence.device.fused_attention:
        return []
    forward = [call for call in attention.softmaxes.tolist() if "backward" not in _name(evidence.group_of(call))]
    # a small softmax may only show in the backward pass: then the names of all events decide
    math = (
        any(_in_math_form(evidence, call) for call in forward) if forward else MATH_ATTENTION in evidence.events.names
    )
    drops = any(
        part in _name(evidence.group_of(call)) for call in attention.passes.tolist() for part in DROPOUT_OPERATIONS
    )
    if not math and not drops:
        return []
    what = "it is the math form of scaled_dot_product_attention" if math else "its weights pass through a dropout"
    return [f"{what}: on a CPU the fused kernel takes no dropout, so a gain is only possible without dropout"]


def _in_math_form(evidence: Evidence, call: int) -> bool:
    around = evidence.ancestors(int(evidence.calls.op[call]))
    return any("scaled_dot_product" in evidence.events.name_of(row) for row in around)


def _treatments(evidence: Evidence, attention: Attention) -> list[str]:
    """If weights are returned: not to ask for them. If attention is written out: the fused form or a compiler."""
    asked = len(_returned(evidence, attention)) or any(
        _is_module(evidence, call) for call in attention.softmaxes.tolist()
    )
    return ["need-weights-false"] if asked else ["sdpa", "compile"]


def _is_module(evidence: Evidence, call: int) -> bool:
    """Whether a softmax is nn.MultiheadAttention's own, and not that of scaled_dot_product_attention's math form."""
    row = int(evidence.calls.op[call])
    return evidence.module_kind(row) == "MultiheadAttention" and not _in_math_form(evidence, call)


def _averaged(evidence: Evidence, attention: Attention) -> list[str]:
    """The fact about scores that are averaged over the heads: nn.MultiheadAttention does that to return them."""
    calls = _returned(evidence, attention)
    if not len(calls):
        return []
    return [
        f"{units.count(len(calls) / evidence.steps.count)} of them average the weights over the heads to return them, "
        "as nn.MultiheadAttention does with need_weights=True"
    ]


def _returned(evidence: Evidence, attention: Attention) -> I8:
    """Reductions of [B, H, S, S'] scores to [B, S, S'], recognised by the output's shape or the reduced dimension."""
    calls = []
    for call in attention.passes.tolist():
        operation = evidence.group_of(call).call
        shapes = [tensor.shape for tensor in tensors(operation)]
        if short_op(operation.name) in ("mean", "sum") and shapes and len(shapes[0]) == 4:
            batch, _, *scores = shapes[0]
            if (batch, *scores) in shapes[1:] or integers(operation, 1) == (1,):
                calls.append(call)
    return _array(calls)


def _facts(evidence: Evidence, attention: Attention, floor: F8) -> list[str]:
    ns, count = evidence.calls.ns, evidence.steps.count
    heaviest = evidence.group_of(int(attention.softmaxes[np.argmax(ns[attention.softmaxes])]))
    passes, matmuls = float(ns[attention.passes].sum()) / count, float(ns[attention.matmuls].sum()) / count
    return [
        f"{units.a_step(len(attention.softmaxes) / count, 'softmax')} between batched matmuls, "
        f"the heaviest on {shapes_text(heaviest)}",
        f"softmax, pointwise calls and copies on the scores: {units.things(len(attention.passes) / count, 'call')}, "
        f"{units.duration(passes)} a step",
        f"their batched matmuls: {units.things(len(attention.matmuls) / count, 'call')}, "
        f"{units.duration(matmuls)} a step, {units.duration(float(floor.sum()) / count)} at the matrix peak",
    ]


def _widened(evidence: Evidence, attention: Attention) -> list[str]:
    """Facts about attention in float32 in a model that computes in 16 bit."""
    bulk, count = low_precision(evidence), evidence.steps.count
    wide = [call for call in attention.matmuls.tolist() if evidence.group_of(call).work.matrix_dtype == "float32"]
    if bulk is None or not wide:
        return []
    ns = evidence.calls.ns
    total = float(ns[wide].sum())
    flop = matrix_flop_of(evidence, wide)
    kernel = evidence.group_of(max(wide, key=lambda call: float(ns[call]))).call.kernels[-1]
    facts = [
        f"{units.percent(bulk[1])} of the matmul FLOP run in {bulk[0]}, but "
        f"{units.things(len(wide) / count, 'matmul')} of the attention in float32: "
        f"{units.duration(total / count)} a step at {units.rate(rate(flop, total), 'FLOP')} ({kernel})",
    ]
    if len(attention.conversions):
        facts.append(
            f"{units.a_step(len(attention.conversions) / count, 'conversion of their operands and results')}: "
            f"{units.duration(float(ns[attention.conversions].sum()) / count)}"
        )
    return [*facts, *_math_form(evidence, attention)]


def _math_form(evidence: Evidence, attention: Attention) -> list[str]:
    """Facts about the attention's form, from the name of a compiled kernel or an operation around the calls."""
    names = {_name(evidence.group_of(call)) for call in attention.softmaxes.tolist()}
    compiled = [name for name in names if name.startswith("triton_")]
    if any("_safe_softmax" in name for name in names) or math_form(evidence, attention.softmaxes) is not None:
        which = f" ({compiled[0]})" if compiled else ""
        facts = [f"it is the math form of scaled_dot_product_attention, not a fused kernel{which}"]
        if any("where" in name and "arange" in name for name in compiled):
            facts.append(
                "the same kernel makes a mask (arange, ge, where): the call was traced with a mask as a tensor"
            )
        return facts
    return []


def _floor(evidence: Evidence, call: int, attention: Attention, bulk: tuple[str, float] | None) -> float:
    """Ns of a matmul inside a fused attention at the matrix peak; all of its time if the peak is not known.

    For a float32 matmul in a model that runs in 16 bit it is the 16-bit peak.
    """
    work = evidence.group_of(call).work
    peak = peak_of(evidence, bulk[0] if bulk and work.matrix_dtype == "float32" else work.matrix_dtype or "")
    if peak is None or not work.matrix_flop:
        return float(evidence.calls.ns[call])
    again = RECOMPUTED if call in attention.recomputed else 1.0
    return again * work.matrix_flop / peak * 1e9


def find_attention(evidence: Evidence) -> Attention:
    """The calls that work on materialised attention scores."""
    passes: set[int] = set()
    matmuls: set[int] = set()
    recomputed: set[int] = set()
    converted: set[int] = set()
    ordered: set[int] = set()
    softmaxes: list[int] = []
    for index, scores, backward in _softmaxes(evidence):
        near = range(max(index - NEIGHBOURHOOD, 0), min(index + NEIGHBOURHOOD + 1, len(evidence.calls)))
        groups = [(call, evidence.group_of(call)) for call in near]
        reads = [call for call, group in groups if _contracts(group) and _reads(group, scores)]
        if not reads:
            continue
        writes = [call for call, group in groups if _contracts(group) and _writes(group, scores)]
        softmaxes.append(index)
        matmuls.update(reads, writes)
        recomputed.update(reads + writes if backward else ())
        passes.update(call for call, group in groups if group.work.fusible and _touches(group, scores))
        operands = {size for call in (*reads, *writes) for size in _other_operands(evidence.group_of(call), scores)}
        converted.update(call for call, group in groups if _converts(group, operands))
        if evidence.device.fused_attention:
            ordered.update(call for call, group in groups if _reorders(group, operands))
    on_scores = passes | matmuls
    return Attention(
        _array(passes), _array(matmuls), frozenset(recomputed), _array(softmaxes), _array(converted - on_scores),
        _array(ordered - on_scores - converted),
    )  # fmt: skip


def _other_operands(group: CallGroup, scores: Scores) -> set[int]:
    """Sizes of a matmul's tensors other than the scores: queries, keys, values, the result."""
    shapes = [tensor.shape for tensor in tensors(group.call)]
    return {int(np.prod(shape, dtype=np.int64)) for shape in shapes if not scores.is_operand(shape)}


def _converts(group: CallGroup, sizes: set[int]) -> bool:
    """A fusible call with a 16-bit and a float32 tensor, both of an operand's size."""
    dtypes = {tensor.dtype for tensor in tensors(group.call) if int(np.prod(tensor.shape, dtype=np.int64)) in sizes}
    return group.work.fusible and "float32" in dtypes and bool(dtypes & {"bfloat16", "float16"})


def _reorders(group: CallGroup, sizes: set[int]) -> bool:
    """A copy between two tensors of an operand's size and one element type."""
    arguments = tensors(group.call)
    if short_op(group.call.name) not in ("copy", "clone", "contiguous") or not arguments:
        return False
    of_operands = all(int(np.prod(tensor.shape, dtype=np.int64)) in sizes for tensor in arguments)
    return of_operands and len({tensor.dtype for tensor in arguments}) == 1


def _of_product(evidence: Evidence, call: int) -> bool:
    """Whether a call is made by a matrix product itself, which needs its operands contiguous."""
    around = evidence.ancestors(int(evidence.calls.op[call]))
    return any(evidence.events.name_of(row) == "aten::matmul" for row in around)


def _softmaxes(evidence: Evidence) -> Iterator[tuple[int, Scores, bool]]:
    """(call, its scores, whether it is a backward) of each softmax that could be attention's."""
    groups = evidence.priced.groups
    by_group = {index: scores for index, group in enumerate(groups) if (scores := _scores(group)) is not None}
    for call, group in enumerate(evidence.calls.group.tolist()):
        if group in by_group:
            yield call, by_group[group], "backward" in _name(groups[group])


def _scores(group: CallGroup) -> Scores | None:
    name = _name(group)
    if "softmax" not in name or "log_softmax" in name or "nll" in name or _contracts(group):
        return None
    shapes = [tensor.shape for tensor in tensors(group.call) if len(tensor.shape) >= 3]
    if not shapes:
        return None
    largest = max(shapes, key=lambda shape: int(np.prod(shape, dtype=np.int64)))
    if largest[-2] < LEAST_SCORE_ROWS or largest[-1] < LEAST_SCORE_COLUMNS:
        return None
    return Scores(int(np.prod(largest, dtype=np.int64)), largest[-2], largest[-1])


def _name(group: CallGroup) -> str:
    """The operation's name; without one the kernels' names (a Triton kernel's lists its operations)."""
    return group.call.name or " ".join(group.call.kernels)


def _contracts(group: CallGroup) -> bool:
    return group.call.name.removeprefix("aten::") in BATCHED_MATMULS


def _reads(group: CallGroup, scores: Scores) -> bool:
    """Whether a factor holds the scores, and not the matrix that is added or written."""
    arguments = tensors(group.call)
    operands = arguments[1:3] if "baddbmm" in group.call.name else arguments[:2]
    return any(scores.is_operand(operand.shape) for operand in operands)


def _writes(group: CallGroup, scores: Scores) -> bool:
    shape, _ = output_of(group.call, group.work.family)
    return shape is not None and scores.is_operand(shape)


def _touches(group: CallGroup, scores: Scores) -> bool:
    return any(scores.is_shape(tensor.shape) for tensor in tensors(group.call))


def _array(values: set[int] | list[int]) -> I8:
    return np.array(sorted(values), dtype=np.int64)
