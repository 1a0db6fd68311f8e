"""Calls that normalize: the framework's own operations, and norms that are written out of pointwise calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.expected import expect
from gobrrr.analysis.pricing.fusion import COMPILED, beside, tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.cost import price
from gobrrr.hardware.efficiency import load
from gobrrr.model.events import I8
from gobrrr.model.work import ITEM_BYTES, Argument, Tensor

F8 = NDArray[np.float64]

REACH = 6
"""Calls of a written norm on each side of its rsqrt: convert, square, mean, epsilon; scale, convert, weight."""

_WHOLE = ("pow", "mul", "square", "copy_", "mean", "sum", "sub", "div", "var", "var_mean")
"""What a written norm does to its whole input; an addition of the same size is a residual's."""

_OPENING = ("pow", "square", "mean", "sum", "var", "var_mean")

LARGE_NS = 10_000
"""A shorter call is held up by its launch and its ramp rather than by its bytes."""


@dataclass(frozen=True)
class Written:
    """One norm out of pointwise calls: its calls, and the bytes that one kernel would move (read once, write once)."""

    calls: tuple[int, ...]
    bytes: float


def own_norms(evidence: Evidence) -> I8:
    """Calls of at least `LARGE_NS` of the framework's normalizations with a known floor that memory sets."""
    wanted = [
        group.work.family == "normalization" and group.floor is not None and group.floor.bound == "memory"
        for group in evidence.priced.groups
    ]
    calls = evidence.calls_where(np.array(wanted, dtype=bool))
    return calls[evidence.calls.ns[calls] >= LARGE_NS]


def batch_norms(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag a call: whether it is a batch norm, which no row-wise norm can stand for."""
    return np.array(["batch_norm" in evidence.group_of(call).call.name for call in calls.tolist()], dtype=bool)


def outside(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag a call: whether it is a batch norm over [N, C, H, W] whose channels are not innermost in memory."""
    given = (tensors(evidence.group_of(call).call) for call in calls.tolist())
    flags = np.array([bool(some) and _outside(some[0]) for some in given], dtype=bool)
    both: NDArray[np.bool_] = batch_norms(evidence, calls) & flags
    return both


def _outside(tensor: Tensor) -> bool:
    return (
        len(tensor.shape) == 4
        and tensor.strides is not None
        and len(tensor.strides) == 4
        and tensor.strides[1] > tensor.strides[3]
    )


def innermost_ns(evidence: Evidence, calls: I8) -> tuple[F8, F8, F8]:
    """(low, expected, high) ns of batch norms with their channels innermost, by the stored shares of such calls.

    The ends are two standard deviations of the logarithm away. NaN where the machine is not known.
    """
    known: dict[int, tuple[float, float]] = {}
    for group in np.unique(evidence.calls.group[calls]).tolist():
        call = evidence.priced.groups[group].call
        turned = replace(call, inputs=tuple(_innermost(one) for one in call.inputs), outputs=None, kernels=())
        if evidence.machine is None:
            known[group] = (float("nan"), 0.0)
            continue
        found = expect(turned, price(turned), evidence.machine, load())
        known[group] = (found.ns, math.exp(2 * found.spread))
    pairs = np.array([known[int(group)] for group in evidence.calls.group[calls]], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0] / pairs[:, 1], pairs[:, 0], pairs[:, 0] * pairs[:, 1]


def _innermost(one: Argument) -> Argument:
    if not isinstance(one, Tensor) or len(one.shape) != 4:
        return one
    _, channels, rows, columns = one.shape
    return replace(one, strides=(channels * rows * columns, 1, columns * channels, channels))


def batch_norm_share(evidence: Evidence) -> float:
    """Share of the time of all norms, written ones included, that batch norms have; 0 without norms."""
    return _share(evidence, batch_norms(evidence, own_norms(evidence)))


def written_share(evidence: Evidence) -> float:
    """Share of the time of all norms that those have which are written out of pointwise calls; 0 without norms."""
    own, ns = float(evidence.calls.ns[own_norms(evidence)].sum()), evidence.calls.ns
    written = sum(float(ns[list(written_norm.calls)].sum()) for written_norm in written_norms(evidence))
    return written / (own + written) if own + written > 0 else 0.0


def _share(evidence: Evidence, wanted: NDArray[np.bool_]) -> float:
    own, ns = own_norms(evidence), evidence.calls.ns
    written = sum(float(ns[list(written_norm.calls)].sum()) for written_norm in written_norms(evidence))
    total = float(ns[own].sum()) + written
    return float(ns[own[wanted]].sum()) / total if total > 0 else 0.0


def written_norms(evidence: Evidence) -> list[Written]:
    """Norms around each `aten::rsqrt`, in the order in which the device ran them; each call in one at most."""
    found: list[Written] = []
    taken: set[int] = set()
    for index in evidence.calls_where(np.array([_op(group) == "rsqrt" for group in evidence.priced.groups])).tolist():
        written = _around(evidence, index, taken)
        if written is not None:
            found.append(written)
            taken.update(written.calls)
    return found


def _around(evidence: Evidence, index: int, taken: set[int]) -> Written | None:
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
        ITEM_BYTES.get(tensor.dtype, 4.0)
        for call in calls
        for tensor in tensors(evidence.group_of(call).call)
        if tensor.shape == shape
    ]
    return Written(tuple(sorted(calls)), 2 * float(np.prod(shape, dtype=np.float64)) * min(sizes)) if sizes else None


def _near(evidence: Evidence, index: int, step: int) -> Iterator[int]:
    """Up to `REACH` calls behind (1) or in front of (-1) a call, nearest first; not those `beside`."""
    at, left = index + step, REACH
    while 0 <= at < len(evidence.calls) and left:
        if not beside(evidence.group_of(at)):
            left -= 1
            yield at
        at += step


def _opens(evidence: Evidence, at: int) -> bool:
    """Whether the next norm begins here: with its square, its reduction, or a conversion in front of them."""
    if _op(evidence.group_of(at)) == "copy_" and at + 1 < len(evidence.calls):
        at += 1
    return _op(evidence.group_of(at)) in _OPENING


def _input(evidence: Evidence, index: int) -> tuple[int, ...] | None:
    """The shape of the norm's input: that of the reduction in front of the rsqrt, whose rows the rsqrt works on."""
    rows = max((tensor.shape for tensor in tensors(evidence.group_of(index).call)), key=len, default=())
    for at in _near(evidence, index, -1):
        group = evidence.group_of(at)
        if _op(group) in ("mean", "sum", "var", "var_mean"):
            shape = max((tensor.shape for tensor in tensors(group.call)), key=_elements, default=())
            fits = shape[:-1] in (rows, rows[:-1]) and len(shape) >= 2
            return shape if fits and _elements(shape) > _elements(rows) else None
    return None


def _belongs(group: Group, shape: tuple[int, ...]) -> bool:
    """A fusible call on the input's shape that a norm makes, or on its rows."""
    if not group.work.fusible or group.work.family == COMPILED:
        return False
    given = [tensor.shape for tensor in tensors(group.call)]
    if shape in given:
        return _op(group) in _WHOLE
    return any(one in (shape[:-1], (*shape[:-1], 1)) for one in given)


def _op(group: Group) -> str:
    return group.call.name.removeprefix("aten::")


def _elements(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
