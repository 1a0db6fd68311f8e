"""Calls that normalize: the framework's operations, and norms that the program writes out as pointwise calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gobrrr.analysis.findings.claims import F8
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.expected import expect
from gobrrr.analysis.pricing.fusion import COMPILED_FAMILY, beside, tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.cost import price
from gobrrr.hardware.efficiency import load
from gobrrr.model.events import I8
from gobrrr.model.work import DTYPE_BYTES, Argument, Tensor

NORM_REACH = 6
"""The most calls of a norm before and after its rsqrt: convert, square, mean, epsilon; scale, convert, weight."""

_NORM_OPS = ("pow", "mul", "square", "copy_", "mean", "sum", "sub", "div", "var", "var_mean")
"""Operations of a written norm on its whole input. An addition of that size belongs to a residual connection."""

_NORM_BEGINS = ("pow", "square", "mean", "sum", "var", "var_mean")
"""Operations that a written norm begins with."""

LEAST_NORM_NS = 10_000
"""A shorter call is bound by its fixed cost rather than by its bytes. Chosen, not measured."""


@dataclass(frozen=True)
class WrittenNorm:
    """A written norm: its calls, and the bytes that one kernel would move (its input once, its output once)."""

    calls: tuple[int, ...]
    bytes: float


def own_norms(evidence: Evidence) -> I8:
    """Memory-bound calls of the framework's normalizations that take at least `LEAST_NORM_NS`."""
    calls = evidence.calls_that(
        lambda group: group.work.family == "normalization" and group.floor is not None and group.floor.bound == "memory"
    )
    return calls[evidence.calls.ns[calls] >= LEAST_NORM_NS]


def batch_norms(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag per call: whether it is a batch norm, which a row-wise norm can't replace."""
    return np.array(["batch_norm" in evidence.group_of(call).call.name for call in calls.tolist()], dtype=bool)


def outside(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag per call: whether it is a batch norm over [N, C, H, W] whose channels are not innermost in memory."""
    inputs = (tensors(evidence.group_of(call).call) for call in calls.tolist())
    batch_norm = batch_norms(evidence, calls).tolist()
    flags = [bool(of_call) and _outside(of_call[0]) for of_call in inputs]
    return np.array([a and b for a, b in zip(batch_norm, flags, strict=True)], dtype=bool)


def _outside(tensor: Tensor) -> bool:
    return (
        len(tensor.shape) == 4
        and tensor.strides is not None
        and len(tensor.strides) == 4
        and tensor.strides[1] > tensor.strides[3]
    )


def innermost_ns(evidence: Evidence, calls: I8) -> tuple[F8, F8, F8]:
    """(low, expected, high) ns of batch norms with their channels innermost, from the stored efficiency of such calls.

    The ends lie two standard deviations of the logarithm away. NaN where the machine is not known.
    """
    known: dict[int, tuple[float, float]] = {}
    for group in np.unique(evidence.calls.group[calls]).tolist():
        call = evidence.priced.groups[group].call
        turned = replace(call, inputs=tuple(_innermost(value) for value in call.inputs), outputs=None, kernels=())
        if evidence.machine is None:
            known[group] = (float("nan"), 0.0)
            continue
        expected = expect(turned, price(turned), evidence.machine, load())
        known[group] = (expected.ns, math.exp(2 * expected.spread))
    pairs = np.array([known[int(group)] for group in evidence.calls.group[calls]], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0] / pairs[:, 1], pairs[:, 0], pairs[:, 0] * pairs[:, 1]


def _innermost(value: Argument) -> Argument:
    """An argument with its channels innermost, if it is a 4-D tensor."""
    if not isinstance(value, Tensor) or len(value.shape) != 4:
        return value
    _, channels, rows, columns = value.shape
    return replace(value, strides=(channels * rows * columns, 1, columns * channels, channels))


def batch_norm_share(evidence: Evidence) -> float:
    """The share of batch norms in the time of all norms, written ones included; 0 without norms."""
    own = own_norms(evidence)
    batch = float(evidence.calls.ns[own[batch_norms(evidence, own)]].sum())
    total = float(evidence.calls.ns[own].sum()) + _written_ns(evidence)
    return batch / total if total > 0 else 0.0


def written_share(evidence: Evidence) -> float:
    """The share of written norms in the time of all norms; 0 without norms."""
    written = _written_ns(evidence)
    total = float(evidence.calls.ns[own_norms(evidence)].sum()) + written
    return written / total if total > 0 else 0.0


def _written_ns(evidence: Evidence) -> float:
    return sum(float(evidence.calls.ns[list(norm.calls)].sum()) for norm in written_norms(evidence))


def written_norms(evidence: Evidence) -> list[WrittenNorm]:
    """Written norms around each `aten::rsqrt`, in the order in which the device ran them; no call is in two of them."""
    norms: list[WrittenNorm] = []
    taken: set[int] = set()
    for rsqrt in evidence.calls_that(lambda group: _op(group) == "rsqrt").tolist():
        norm = _around(evidence, rsqrt, taken)
        if norm is not None:
            norms.append(norm)
            taken.update(norm.calls)
    return norms


def _around(evidence: Evidence, index: int, taken: set[int]) -> WrittenNorm | None:
    """The written norm around an rsqrt, without calls that are `taken`; None where there is none."""
    shape = _input(evidence, index)
    if shape is None:
        return None
    calls = [index]
    for step in (-1, 1):
        for at in _near(evidence, index, step):
            if at in taken or not _belongs(evidence.group_of(at), shape):
                break
            if step > 0 and _opens(evidence, at):
                break
            calls.append(at)
    sizes = [
        DTYPE_BYTES.get(tensor.dtype, 4.0)
        for call in calls
        for tensor in tensors(evidence.group_of(call).call)
        if tensor.shape == shape
    ]
    return (
        WrittenNorm(tuple(sorted(calls)), 2 * float(np.prod(shape, dtype=np.float64)) * min(sizes)) if sizes else None
    )


def _near(evidence: Evidence, index: int, step: int) -> Iterator[int]:
    """Up to `NORM_REACH` calls after (1) or before (-1) a call, nearest first, without those that run `beside`
    chains."""
    at, left = index + step, NORM_REACH
    while 0 <= at < len(evidence.calls) and left:
        if not beside(evidence.group_of(at)):
            left -= 1
            yield at
        at += step


def _opens(evidence: Evidence, at: int) -> bool:
    """Whether the next norm begins here: with its square, its reduction, or a conversion before these."""
    if _op(evidence.group_of(at)) == "copy_" and at + 1 < len(evidence.calls):
        at += 1
    return _op(evidence.group_of(at)) in _NORM_BEGINS


def _input(evidence: Evidence, index: int) -> tuple[int, ...] | None:
    """The shape of the norm's input: that of the reduction before the rsqrt, if the rsqrt works on its rows."""
    rows = max((tensor.shape for tensor in tensors(evidence.group_of(index).call)), key=len, default=())
    for at in _near(evidence, index, -1):
        group = evidence.group_of(at)
        if _op(group) in ("mean", "sum", "var", "var_mean"):
            shape = max((tensor.shape for tensor in tensors(group.call)), key=_elements, default=())
            fits = shape[:-1] in (rows, rows[:-1]) and len(shape) >= 2
            return shape if fits and _elements(shape) > _elements(rows) else None
    return None


def _belongs(group: CallGroup, shape: tuple[int, ...]) -> bool:
    """Whether a norm may make a call: fusible, on tensors of the input's shape or on its rows."""
    if not group.work.fusible or group.work.family == COMPILED_FAMILY:
        return False
    shapes = [tensor.shape for tensor in tensors(group.call)]
    if shape in shapes:
        return _op(group) in _NORM_OPS
    return any(rows in (shape[:-1], (*shape[:-1], 1)) for rows in shapes)


def _op(group: CallGroup) -> str:
    return group.call.name.removeprefix("aten::")


def _elements(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
