"""What a fusing compiler could leave out: chains of fusible calls in which each reads what the one before wrote.

A trace does not say which tensor is which. A call is taken to read its predecessor's output when the predecessor's
output has the shape and the bytes of one of its arguments and nothing else ran in between on the stream. Outputs are
derived: pointwise calls, norms and softmax write the broadcast shape of their inputs, contractions are heads only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from gobrrr.analysis.pricing.price import Group
from gobrrr.model.events import I8
from gobrrr.model.work import ITEM_BYTES, OpCall, Tensor

Passed = Callable[[tuple[int, int]], float]
"""Bytes handed from the left group to the right one."""

HEADS = ("matmul", "convolution")
"""Contractions whose epilogue can take the next pointwise call in."""

COMPILED = "inductor"
"""What a compiler wrote is as fused as that compiler found it worth."""


@dataclass(frozen=True)
class Chain:
    """Consecutive calls that could be one kernel; indices into `Calls`.

    `spared_low`: bytes spared if every intermediate is still written (kept for the backward pass), `spared_high`: if
    none is. `spared_high` of a chain with a contraction at its head includes the contraction's output.
    """

    calls: tuple[int, ...]
    spared_low: float
    spared_high: float
    head: bool  # begins with a contraction
    head_bytes: float = 0.0  # what the contraction hands on
    tail_bytes: float = 0.0  # of an attention (product, softmax, product): what the second product reads

    def without_head(self) -> Chain | None:
        """The chain of fusible calls alone; None if that leaves a single call."""
        if not self.head:
            return self
        if len(self.calls) < 3:
            return None
        return Chain(self.calls[1:], self.spared_low - self.head_bytes, self.spared_high - 2 * self.head_bytes, False)


@dataclass(frozen=True)
class Fusion:
    """All chains of the window, each call in one at most."""

    chains: tuple[Chain, ...]

    def spared_at_most(self) -> float:
        """Bytes spared if every region is one kernel: epilogues join their contraction, attentions are whole."""
        return sum(chain.spared_high + 2 * chain.tail_bytes for chain in self.chains)

    def spared(self, *, kept: bool) -> float:
        """Bytes spared over all chains, contractions aside; `kept`: intermediates are still written."""
        # a fused attention keeps no scores for the backward pass: it computes them again
        whole = sum(chain.spared_high + 2 * chain.tail_bytes for chain in self.chains if chain.tail_bytes)
        own = [chain.without_head() for chain in self.chains if not chain.tail_bytes]
        return whole + sum(chain.spared_low if kept else chain.spared_high for chain in own if chain is not None)


def find_chains(groups: tuple[Group, ...], group: I8, stream: I8, step: I8) -> Fusion:
    """Chains in calls given in device order (`group`, `stream` and number of the step of each)."""
    links = _links(groups)
    chains: list[Chain] = []
    current: list[int] = []
    for index in range(len(group)):
        if beside(groups[int(group[index])]):
            continue
        last = current[-1] if current else index
        if current and stream[index] == stream[last] and step[index] == step[last]:
            pair = (int(group[current[-1]]), int(group[index]))
            if links(pair) > 0:
                current.append(index)
                continue
        _close(chains, current, groups, group, links, index)
        current = [index] if _can_open(groups[int(group[index])]) else []
    _close(chains, current, groups, group, links)
    return Fusion(tuple(chains))


def beside(group: Group) -> bool:
    """Whether a CPU only turned a Python number into an operand (0-dim tensors): part of the operation behind it."""
    given = tensors(group.call)
    kernels = group.call.kernels
    return bool(given and kernels) and kernels[0].startswith("CPU ") and not any(tensor.shape for tensor in given)


def _can_open(group: Group) -> bool:
    return group.work.known and (group.work.fusible or group.work.family in HEADS)


def _close(
    chains: list[Chain], current: list[int], groups: tuple[Group, ...], group: I8, links: Passed, behind: int = -1
) -> None:
    """Note the chain, if it is one; `behind` is the call after it, -1 if there is none."""
    if len(current) < 2:
        return
    head = groups[int(group[current[0]])].work.family in HEADS
    passed = [links((int(group[left]), int(group[right]))) for left, right in pairwise(current)]
    spared = float(sum(passed))
    tail = _read_by_product(current, groups, group, behind) if head else 0.0
    chains.append(Chain(tuple(current), spared, 2 * spared, head, passed[0] if head else 0.0, tail))


def _read_by_product(current: list[int], groups: tuple[Group, ...], group: I8, behind: int) -> float:
    """Bytes that the product behind a chain with a softmax in it reads of the chain's result; else 0."""
    if behind < 0 or not any(groups[int(group[one])].work.family == "softmax" for one in current):
        return 0.0
    last, product = groups[int(group[current[-1]])], groups[int(group[behind])]
    shape, dtype = output_of(last.call, last.work.family)
    if product.work.family != "matmul" or shape is None or len(shape) < 2:
        return 0.0
    sizes = {math.prod(tensor.shape) for tensor in tensors(product.call) if tensor.shape[-1:] == shape[-1:]}
    return float(math.prod(shape) * ITEM_BYTES.get(dtype or "", 0)) if math.prod(shape) in sizes else 0.0


def _links(groups: tuple[Group, ...]) -> Passed:
    @cache
    def passed(pair: tuple[int, int]) -> float:
        """Bytes handed from the left call to the right one; 0 if it does not read its output."""
        left, right = groups[pair[0]], groups[pair[1]]
        if not right.work.fusible or not right.work.known or not _can_open(left):
            return 0.0
        if COMPILED in (left.work.family, right.work.family):
            return 0.0
        shape, dtype = output_of(left.call, left.work.family)
        if shape is None or not shape:
            return 0.0
        if not any(tensor.shape == shape for tensor in tensors(right.call)):
            return 0.0
        written = left.work.bytes_written or 0.0
        size = math.prod(shape) * ITEM_BYTES.get(dtype or "", 0)
        return min(written, size) if size else written

    return passed


def tensors(call: OpCall) -> list[Tensor]:
    """The tensor arguments of a call, lists flattened."""
    return call.tensors


def output_of(call: OpCall, family: str) -> tuple[tuple[int, ...] | None, str | None]:
    """(shape, dtype) of the main output, as far as the arguments tell; (None, None) otherwise."""
    given = tensors(call)
    if not given:
        return None, None
    if family in HEADS:
        return _contraction_output(call, given)
    shape = _broadcast([tensor.shape for tensor in given])
    return (shape, given[0].dtype) if shape is not None else (None, None)


def _contraction_output(call: OpCall, given: list[Tensor]) -> tuple[tuple[int, ...] | None, str | None]:
    """mm, bmm and addmm: rows of the left operand by columns of the right one."""
    name = call.name.removeprefix("aten::")
    operands = {"mm": given[:2], "bmm": given[:2], "addmm": given[1:3], "baddbmm": given[1:3]}.get(name)
    if operands is None or len(operands) != 2 or min(len(operand.shape) for operand in operands) < 2:
        return None, None
    left, right = operands
    return (*left.shape[:-1], right.shape[-1]), left.dtype


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        return tuple(int(size) for size in np.broadcast_shapes(*shapes))
    except ValueError:
        return max(shapes, key=lambda shape: math.prod(shape) if shape else 0)


def spared_ns(bytes_: float, bandwidth: float | None) -> float | None:
    """Nanoseconds that `bytes_` take at `bandwidth`; None if the bandwidth is not known."""
    return bytes_ / bandwidth * 1e9 if bandwidth else None
