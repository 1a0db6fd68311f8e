"""Chains of fusible calls in which each call reads the previous call's output, which a fusing compiler could join.

A trace does not identify tensors. A call is taken to read its predecessor's output where that has the shape and the
bytes of one of its arguments, and nothing else ran in between on the stream. Outputs are derived: pointwise calls,
norms and softmax write the broadcast shape of their inputs; contractions can only begin a chain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.events import I8
from gobrrr.model.work import DTYPE_BYTES, OpCall, Tensor

Passed = Callable[[tuple[int, int]], float]
"""From (left group, right group) to the bytes that the right one reads of the left one's output."""

CONTRACTION_FAMILIES = ("matmul", "convolution")
"""Families of contractions whose epilogue can include the next pointwise call."""

COMPILED_FAMILY = "inductor"
"""The family of compiled kernels: the compiler has already fused them as far as it pays."""


@dataclass(frozen=True)
class Chain:
    """Consecutive calls that could be one kernel; indices into `Calls`.

    `spared_low`: bytes saved if every intermediate is still written (for the backward pass); `spared_high`: bytes saved
    if none is. Where a contraction heads the chain, both include its output.
    """

    calls: tuple[int, ...]
    spared_low: float
    spared_high: float
    head: bool  # a contraction is the first call
    head_bytes: float = 0.0  # the contraction's output that the next call reads
    tail_bytes: float = 0.0  # in an attention (product, softmax, product): what the second product reads

    def without_head(self) -> Chain | None:
        """The chain without its contraction; None if a single call remains."""
        if not self.head:
            return self
        if len(self.calls) < 3:
            return None
        return Chain(self.calls[1:], self.spared_low - self.head_bytes, self.spared_high - 2 * self.head_bytes, False)


@dataclass(frozen=True)
class Fusion:
    """All chains of the window; each call is in at most one."""

    chains: tuple[Chain, ...]

    def spared_at_most(self) -> float:
        """Bytes saved if every region is one kernel: epilogues join their contraction, attentions are whole."""
        return sum(chain.spared_high + 2 * chain.tail_bytes for chain in self.chains)

    def spared(self, *, kept: bool) -> float:
        """Bytes saved over all chains, contractions aside. `kept`: intermediates are still written."""
        # a fused attention stores no scores for the backward pass: it recomputes them
        whole = sum(chain.spared_high + 2 * chain.tail_bytes for chain in self.chains if chain.tail_bytes)
        own = [chain.without_head() for chain in self.chains if not chain.tail_bytes]
        return whole + sum(chain.spared_low if kept else chain.spared_high for chain in own if chain is not None)


def find_chains(groups: tuple[CallGroup, ...], group: I8, stream: I8, step: I8) -> Fusion:
    """The chains in a sequence of calls in device order: the `group`, `stream` and `step` of each."""
    passed_bytes = _links(groups)
    chains: list[Chain] = []
    current: list[int] = []
    for index in range(len(group)):
        if beside(groups[int(group[index])]):
            continue
        last = current[-1] if current else index
        if current and stream[index] == stream[last] and step[index] == step[last]:
            pair = (int(group[current[-1]]), int(group[index]))
            if passed_bytes(pair) > 0:
                current.append(index)
                continue
        _close(chains, current, groups, group, passed_bytes, index)
        current = [index] if _can_open(groups[int(group[index])]) else []
    _close(chains, current, groups, group, passed_bytes)
    return Fusion(tuple(chains))


def beside(group: CallGroup) -> bool:
    """Whether a CPU only converts a Python number to an operand (0-dim tensors): a part of the next operation."""
    arguments = group.call.tensors
    kernels = group.call.kernels
    return (
        bool(arguments and kernels) and kernels[0].startswith("CPU ") and not any(tensor.shape for tensor in arguments)
    )


def _can_open(group: CallGroup) -> bool:
    return group.work.known and (group.work.fusible or group.work.family in CONTRACTION_FAMILIES)


def _close(
    chains: list[Chain],
    current: list[int],
    groups: tuple[CallGroup, ...],
    group: I8,
    passed_bytes: Passed,
    behind: int = -1,
) -> None:
    """Add the current calls to the chains, if there are at least two. `behind`: the call after them, -1 for none."""
    if len(current) < 2:
        return
    head = groups[int(group[current[0]])].work.family in CONTRACTION_FAMILIES
    handed = [passed_bytes((int(group[left]), int(group[right]))) for left, right in pairwise(current)]
    spared = float(sum(handed))
    tail = _read_by_product(current, groups, group, behind) if head else 0.0
    chains.append(Chain(tuple(current), spared, 2 * spared, head, handed[0] if head else 0.0, tail))


def _read_by_product(current: list[int], groups: tuple[CallGroup, ...], group: I8, behind: int) -> float:
    """Bytes that the product after a chain with a softmax reads of the chain's result; else 0."""
    if behind < 0 or not any(groups[int(group[call])].work.family == "softmax" for call in current):
        return 0.0
    last, product = groups[int(group[current[-1]])], groups[int(group[behind])]
    shape, dtype = output_of(last.call, last.work.family)
    if product.work.family != "matmul" or shape is None or len(shape) < 2:
        return 0.0
    sizes = {math.prod(tensor.shape) for tensor in product.call.tensors if tensor.shape[-1:] == shape[-1:]}
    return float(math.prod(shape) * DTYPE_BYTES.get(dtype or "", 0)) if math.prod(shape) in sizes else 0.0


def _links(groups: tuple[CallGroup, ...]) -> Passed:
    @cache
    def passed(pair: tuple[int, int]) -> float:
        """Bytes that the right call reads of the left call's output; 0 if it reads none."""
        left, right = groups[pair[0]], groups[pair[1]]
        if not right.work.fusible or not right.work.known or not _can_open(left):
            return 0.0
        if COMPILED_FAMILY in (left.work.family, right.work.family):
            return 0.0
        shape, dtype = output_of(left.call, left.work.family)
        if shape is None or not shape:
            return 0.0
        if not any(tensor.shape == shape for tensor in right.call.tensors):
            return 0.0
        written = left.work.bytes_written or 0.0
        size = math.prod(shape) * DTYPE_BYTES.get(dtype or "", 0)
        return min(written, size) if size else written

    return passed


def tensors(call: OpCall) -> list[Tensor]:
    """The tensor arguments of a call, lists flattened."""
    return call.tensors


def output_of(call: OpCall, family: str) -> tuple[tuple[int, ...] | None, str | None]:
    """(shape, dtype) of the main output, where the arguments determine it; else (None, None)."""
    if not call.tensors:
        return None, None
    if family in CONTRACTION_FAMILIES:
        return _contraction_output(call, call.tensors)
    shape = _broadcast([tensor.shape for tensor in call.tensors])
    return (shape, call.tensors[0].dtype) if shape is not None else (None, None)


def _contraction_output(call: OpCall, arguments: list[Tensor]) -> tuple[tuple[int, ...] | None, str | None]:
    """For mm, bmm and addmm: the rows of the left operand by the columns of the right one."""
    name = call.name.removeprefix("aten::")
    operands = {"mm": arguments[:2], "bmm": arguments[:2], "addmm": arguments[1:3], "baddbmm": arguments[1:3]}.get(name)
    if operands is None or len(operands) != 2 or min(len(operand.shape) for operand in operands) < 2:
        return None, None
    left, right = operands
    return (*left.shape[:-1], right.shape[-1]), left.dtype


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        return tuple(int(size) for size in np.broadcast_shapes(*shapes))
    except ValueError:
        return max(shapes, key=lambda shape: math.prod(shape) if shape else 0)
